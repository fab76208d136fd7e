/** The fold: what the protocol says of each event, and what holds for every sequence of them. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decode } from '../src/decode.js';
import type { TurnEvent } from '../src/events.js';
import { decided, EMPTY, fold, waits } from '../src/fold.js';
import type { TurnState } from '../src/view.js';
import fc from './support/properties.js';

const call = { step: 1, tool: 'refund', args: { cents: 5 } };
const pending = { ...call, expiresAt: '2030-01-01T00:00:00Z' };

function folded(events: readonly unknown[], from = EMPTY): TurnState {
  return events.reduce<TurnState>((state, event) => fold(state, event as TurnEvent), from);
}

function numbered(...events: [string, unknown][]) {
  return events.map(([type, data], at) => ({ id: at + 1, type, data }) as TurnEvent);
}

test('tokens join, halves of a character included', () => {
  const state = folded(numbered(['token', 'a'], ['token', '\ud83d'], ['token', '\ude00']));
  assert.deepEqual([state.text, state.cursor, state.end], ['a😀', 3, undefined]);
});

test('an id that is not above the cursor changes nothing, not even the object', () => {
  const state = folded(numbered(['token', 'a'], ['token', 'b']));
  for (const id of [0, 1, 2]) assert.equal(fold(state, { id, type: 'token', data: 'x' }), state);
});

test('ids may jump: whoever takes over leaves a gap', () => {
  assert.equal(fold(EMPTY, { id: 10_001, type: 'token', data: 'a' }).cursor, 10_001);
});

test('rewind cuts to a length in UTF-16 code units and moves what stood after it', () => {
  const state = folded(
    numbered(
      ['token', 'é🌍x'],
      ['tool_start', call],
      ['rewind', { to: 0, length: 3 }],
      ['token', '!'],
    ),
  );
  assert.deepEqual([state.text, state.steps[0]?.at, state.rewinds], ['é🌍!', 3, 1]);
  assert.equal(folded(numbered(['token', 'ab'], ['rewind', { to: 0, length: 0 }])).text, '');
});

test('a step is folded by its number: asked, decided, running, ended', () => {
  const asked = folded(numbered(['token', 'ab'], ['tool_pending', pending]));
  const [step] = asked.steps;
  assert.deepEqual(step, { ...pending, status: 'pending', at: 2 });
  assert.equal(waits(asked), true);
  assert.equal(waits(decided(asked, 1)), false);
  assert.equal(waits(decided(asked, 2)), true);
  const run = fold(decided(asked, 1), { id: 3, type: 'tool_start', data: call });
  assert.deepEqual([run.steps.length, run.steps[0]?.status, waits(run)], [1, 'running', false]);
  const end = { step: 1, tool: 'refund', status: 'ok', result: { done: true } } as const;
  const ended = fold(run, { id: 4, type: 'tool_end', data: end });
  assert.deepEqual(ended.steps[0], { ...pending, ...end, at: 2 });
});

test('steps are kept by number, whatever order they come in', () => {
  const state = folded(
    numbered(['tool_start', { ...call, step: 3 }], ['tool_pending', { ...pending, step: 2 }]),
  );
  assert.deepEqual(
    state.steps.map(({ step }) => step),
    [2, 3],
  );
});

test('a turn does not wait while another step runs: that end was a cut', () => {
  const state = folded(numbered(['tool_pending', pending], ['tool_start', { ...call, step: 2 }]));
  assert.equal(waits(state), false);
});

test('an end stops what is open, and is the last that counts', () => {
  for (const [type, data] of [
    ['done', { reason: 'cancelled', usage: { tokens: 3 } }],
    ['error', { code: 'agent_failed', message: 'm', correlationId: 'c' }],
  ] as const) {
    const state = folded(
      numbered(['tool_start', call], ['tool_pending', { ...pending, step: 2 }], [type, data]),
    );
    assert.deepEqual(
      state.steps.map(({ status }) => status),
      ['stopped', 'stopped'],
    );
    assert.equal(waits(state), false);
    assert.equal(fold(state, { id: 9, type: 'token', data: 'late' }), state);
  }
});

const event = fc.oneof(
  fc.record({ type: fc.constant('token'), data: fc.string() }),
  fc.record({
    type: fc.constantFrom('tool_start', 'tool_pending'),
    data: fc.record({ step: fc.nat(5), tool: fc.string(), args: fc.constant({}) }),
  }),
  fc.record({
    type: fc.constant('tool_end'),
    data: fc.record({
      step: fc.nat(5),
      tool: fc.string(),
      status: fc.constantFrom('ok', 'denied'),
      // As a server writes it: JavaScript's JSON knows no -0.
      result: fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value))),
    }),
  }),
  fc.record({
    type: fc.constant('rewind'),
    data: fc.record({ to: fc.nat(9), length: fc.nat(20) }),
  }),
);
const journal = fc
  .array(fc.tuple(fc.integer({ min: 1, max: 10_000 }), event), { maxLength: 40 })
  .map((entries) => {
    let id = 0;
    return entries.map(([gap, each]) => {
      id += gap;
      return { id, ...each };
    });
  });

test('however often a journal is cut and replayed from anywhere before, the fold is the same', () => {
  fc.assert(
    fc.property(journal, fc.array(fc.tuple(fc.nat(40), fc.nat(40))), (events, cuts) => {
      let state = EMPTY;
      for (const [from, to] of cuts) {
        // A replay may begin before the cursor, never after it.
        const seen = events.filter(({ id }) => id <= state.cursor).length;
        state = folded(events.slice(Math.min(from, seen), to), state);
      }
      const seen = events.filter(({ id }) => id <= state.cursor).length;
      assert.deepEqual(folded(events.slice(seen), state), folded(events));
    }),
  );
});

test('a state that was saved as JSON folds on as if it had not been', () => {
  fc.assert(
    fc.property(journal, fc.nat(40), (events, at) => {
      const saved = JSON.parse(JSON.stringify(folded(events.slice(0, at))));
      assert.deepEqual(folded(events.slice(at), saved), folded(events));
    }),
  );
});

test('no state that was shown is changed afterwards', () => {
  const freeze = (state: TurnState) => {
    for (const each of [state, state.steps, ...state.steps]) Object.freeze(each);
    return state;
  };
  fc.assert(
    fc.property(journal, (events) => {
      events.reduce((state, each) => freeze(fold(state, each as TurnEvent)), EMPTY);
    }),
  );
});

test('whatever a frame holds, it decodes, counts for nothing, or is unreadable', () => {
  const types = ['token', 'tool_start', 'tool_end', 'tool_pending', 'rewind', 'done', 'error'];
  fc.assert(
    fc.property(
      fc.oneof(fc.nat().map(String), fc.string()),
      fc.constantFrom(...types, '', 'toString', '__proto__'),
      fc.oneof(fc.json(), fc.string()),
      (id, type, data) => {
        try {
          const decoded = decode(id, type, data);
          if (decoded) fold(EMPTY, decoded);
        } catch (error) {
          assert.match(String(error), /unreadable/);
        }
      },
    ),
  );
});
