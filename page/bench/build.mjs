// Bundles the benchmark's page into the folder that is named. The client has to be built.
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

await build({
  entryPoints: [fileURLToPath(new URL('main.ts', import.meta.url))],
  outfile: resolve(process.argv[2], 'bench.js'),
  bundle: true,
  format: 'esm',
  minify: true,
  target: 'es2022',
  logLevel: 'warning',
});
