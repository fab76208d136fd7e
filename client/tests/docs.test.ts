/** The documents' code is code that compiles. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

test('what the documents show of React is in the example that is compiled', () => {
  const example = read('example/chat.tsx');
  for (const document of ['README.md', '../docs/guides/client.md'])
    for (const [, code] of read(document).matchAll(/```tsx\n(.*?)```/gs))
      assert.ok(example.includes(code ?? ''), `${document}: ${code}`);
});

test('what the guide shows of a page is in the examples that are compiled', () => {
  const example = ['page.ts', 'local.ts', 'ask.ts'].map((name) => read(`example/${name}`)).join('');
  for (const [, code] of read('../docs/guides/client.md').matchAll(/```ts\n(.*?)```/gs))
    assert.ok(example.includes(code ?? ''), code);
});
