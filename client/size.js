// Prints what the package adds to a page, minified and gzipped, without the Firebase SDK and React.
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/** The core must stay below this. */
export const LIMIT_BYTES = 6_000;

/** Return the size of a module that imports all of an entry point. */
export async function size(entry) {
  const { outputFiles } = await build({
    entryPoints: [new URL(entry, import.meta.url).pathname],
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    external: ['react'],
    write: false,
  });
  return gzipSync(outputFiles[0].contents, { level: 9 }).length;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  console.log(`core           ${await size('src/index.ts')} bytes gzipped (limit ${LIMIT_BYTES})`);
  console.log(`core and React ${await size('src/react.ts')} bytes gzipped`);
}
