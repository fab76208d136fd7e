/** What the package weighs, and what it takes along. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

// Measured as a page's bundler sees it, from the source; the module lies outside the build.
const { LIMIT_BYTES, size } = await import(new URL('../../size.js', import.meta.url).href);

test('the core, its parser included, stays below its limit', async () => {
  assert.ok((await size('src/index.ts')) < LIMIT_BYTES);
});

test('the pure parts can be had without the rest', async () => {
  assert.ok((await size('src/ids.ts')) < 400);
  assert.ok((await size('src/react.ts')) < 1_000);
});
