/** Browsers without newer APIs: a turn streams all the same. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientOf, PROMPT, says, TurnServer } from './support/server.js';

const NEWER: [object, PropertyKey][] = [
  [Promise, 'withResolvers'],
  [Promise, 'any'],
  [AbortSignal, 'any'],
  [AbortSignal, 'timeout'],
  [AbortSignal.prototype, 'throwIfAborted'],
  [AbortSignal.prototype, 'reason'],
  [Object, 'hasOwn'],
  [Object, 'groupBy'],
  [Array.prototype, 'at'],
  [Array.prototype, 'findLast'],
  [Array.prototype, 'toSorted'],
  [String.prototype, 'at'],
  [String.prototype, 'replaceAll'],
  [ReadableStream.prototype, Symbol.asyncIterator],
  [ReadableStream.prototype, 'values'],
  [globalThis, 'TextDecoderStream'],
  [globalThis, 'structuredClone'],
  [globalThis, 'requestIdleCallback'],
  [globalThis, 'scheduler'],
  [crypto, 'randomUUID'],
  [Object.getPrototypeOf(crypto), 'randomUUID'],
];

test('a turn streams without what older browsers lack', async (t) => {
  const server = await new TurnServer(says('a', 'b')).listen(t);
  const { client } = clientOf(server, {
    // Node's own `fetch` may need what is missing; a browser's has what it needs.
    fetch: async (...request) => {
      restore();
      const response = await fetch(...request);
      remove();
      return response;
    },
  });
  const kept = NEWER.map(([owner, name]) => Object.getOwnPropertyDescriptor(owner, name));
  const remove = () => {
    for (const [owner, name] of NEWER) Reflect.deleteProperty(owner, name);
  };
  const restore = () => {
    NEWER.forEach(([owner, name], at) => {
      const descriptor = kept[at];
      if (descriptor) Object.defineProperty(owner, name, descriptor);
    });
  };
  t.after(restore);
  remove();
  assert.equal('randomUUID' in crypto, false);
  assert.equal((await client.start(PROMPT).finished).text, 'ab');
});
