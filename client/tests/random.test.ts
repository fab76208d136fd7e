/** Whatever a network does, in any order: the text at the end is the fold of the journal. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { TurnEvent } from '../src/events.js';
import { EMPTY, fold } from '../src/fold.js';
import fc from './support/properties.js';
import {
  type Behaviour,
  clientOf,
  cutAt,
  dead,
  type Entry,
  endAt,
  inPieces,
  PROMPT,
  page,
  pingsOnly,
  refuse,
  stream,
  TurnServer,
} from './support/server.js';

type Misbehaviour = (server: TurnServer) => Behaviour;

const misbehaviour: fc.Arbitrary<Misbehaviour> = fc.oneof<fc.Arbitrary<Misbehaviour>[]>(
  fc.nat(400).map((bytes) => () => cutAt(bytes)),
  fc.nat(400).map((bytes) => () => endAt(bytes)),
  fc.constantFrom(
    () => dead,
    () => pingsOnly,
    () => refuse(503, 'at_capacity'),
    () => refuse(500, 'internal'),
    () => page(502),
    () => page(200),
  ),
  // A replay that begins too early, cut.
  fc.nat(400).map((bytes) => (server: TurnServer) => (answer, _, seen) => {
    cutAt(bytes)(answer, server.rest(Math.max(0, seen.cursor - 3)), seen);
  }),
  // Half a frame, made to look whole.
  fc.nat(400).map((at) => () => (answer, rest) => {
    stream(answer);
    answer.end(`${rest.slice(0, at)}\n\n`);
  }),
);

const text = fc.oneof(fc.string(), fc.constantFrom('那🌍é', '\ud83d', '\ude00', '\r\n\n', ''));
const journal: fc.Arbitrary<Entry[]> = fc
  .array(
    fc.tuple(
      fc.oneof(
        { weight: 5, arbitrary: text.map((data): [string, unknown] => ['token', data]) },
        {
          weight: 1,
          arbitrary: fc.nat(10).map((length): [string, unknown] => ['rewind', { to: 0, length }]),
        },
      ),
      fc.oneof({ weight: 9, arbitrary: fc.constant(1) }, { weight: 1, arbitrary: fc.nat(20_000) }),
    ),
    { maxLength: 25 },
  )
  .map((entries) => {
    let id = 0;
    const numbered = entries.map(([[type, data], gap]): Entry => {
      id += 1 + gap;
      return [type, data, id];
    });
    return [...numbered, ['done', { reason: 'stop' }, id + 1]];
  });

async function run(
  t: TestContext,
  entries: Entry[],
  misbehaviours: Misbehaviour[],
  size: number,
): Promise<void> {
  const server = await new TurnServer(entries).listen(t);
  server.behave = (n) => misbehaviours[n]?.(server) ?? inPieces(size);
  const { client } = clientOf(server, { backoff: { baseMs: 1, capMs: 2, maxFailures: 50 } });
  const turn = client.start(PROMPT);
  const view = await turn.finished;
  const expected = entries.reduce(
    (state, [type, data, id]) => fold(state, { id, type, data } as TurnEvent),
    EMPTY,
  );
  assert.equal(view.status, 'done', JSON.stringify(view.error));
  assert.deepEqual(turn.save().state, expected);
  // What was asked for is what was not yet handled: the cursor only goes up.
  const cursors = server.seen.map(({ cursor }) => cursor);
  assert.deepEqual(
    cursors,
    [...cursors].sort((a, b) => a - b),
  );
}

test('a turn comes through any network', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      journal,
      fc.array(misbehaviour, { maxLength: 12 }),
      fc.integer({ min: 1, max: 100 }),
      (entries, misbehaviours, size) => run(t, entries, misbehaviours, size),
    ),
    { numRuns: 60 },
  );
});
