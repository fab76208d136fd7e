// Prints what the package adds to a page, minified and gzipped, without the Firebase SDK and React.
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/** The package's own code must stay below this; its one dependency, the parser, comes on top. */
export const LIMIT_BYTES = 6_000;

/** Return the size of a module that has all exports of an entry point. */
export async function size(entry, external = []) {
  const { outputFiles } = await build({
    entryPoints: [new URL(entry, import.meta.url).pathname],
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    external: ['react', ...external],
    write: false,
  });
  return gzipSync(outputFiles[0].contents, { level: 9 }).length;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const core = await size('src/index.ts', ['eventsource-parser']);
  const all = await size('src/index.ts');
  console.log(`core                      ${core} bytes gzipped (limit ${LIMIT_BYTES})`);
  console.log(`core, eventsource-parser  ${all} bytes gzipped`);
  console.log(`React hook, on top        ${await size('src/react.ts')} bytes gzipped`);
}
