// Checks the types, and bundles the page into the folder that is named, or ../public/assets.
import { execFileSync } from 'node:child_process';
import { cp, mkdir, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const assets = resolve(process.argv[2] ?? here('../public/assets'));

const tsc = (...words) =>
  execFileSync(process.execPath, [here('node_modules/typescript/bin/tsc'), ...words], {
    cwd: here('.'),
    stdio: 'inherit',
  });
tsc('-p', '../client/tsconfig.build.json');
tsc('-p', '.');

await rm(assets, { recursive: true, force: true });
await mkdir(assets, { recursive: true });
for (const font of ['geist', 'geist-mono']) {
  const file = `node_modules/@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`;
  await cp(here(file), `${assets}/${font}.woff2`);
}
await build({
  absWorkingDir: here('.'),
  entryPoints: { page: 'src/main.ts' },
  outdir: assets,
  bundle: true,
  format: 'esm',
  splitting: true, // App Check is fetched in production only
  minify: true,
  sourcemap: true,
  target: 'es2022',
  chunkNames: '[name]-[hash]',
  logLevel: 'warning',
});
