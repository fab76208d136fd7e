// Prints what the package adds to a page, minified and gzipped, without the Firebase SDK and React.
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/** The core stays below this, eventsource-parser included. */
export const LIMIT_BYTES = 6_000;

/** Return the size of a module that has all exports of an entry point. */
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
  const lines = {
    'core, with its parser': `${await size('src/index.ts')} bytes gzipped (limit ${LIMIT_BYTES})`,
    'Firebase tokens, on top': `${await size('src/firebase.ts')} bytes gzipped`,
    'React hook, on top': `${await size('src/react.ts')} bytes gzipped`,
  };
  for (const [what, size] of Object.entries(lines)) console.log(`${what.padEnd(25)}${size}`);
}
