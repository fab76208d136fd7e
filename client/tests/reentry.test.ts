/** What a page's own functions do while they are called: leave, stop, decide, connect, unsubscribe, throw. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import {
  type ClientOptions,
  newTurnId,
  type TimelineEntry,
  type TurnEvent,
  type TurnHandle,
} from '../src/index.js';
import {
  cancelled,
  clientOf,
  cutAfter,
  dead,
  type Entry,
  PROMPT,
  refuse,
  says,
  stalled,
  TurnServer,
  until,
} from './support/server.js';

const ask: Entry = [
  'tool_pending',
  { step: 1, tool: 'refund', args: {}, expiresAt: '2030-01-01T00:00:00Z' },
];
const quiet = () => new Promise((resolve) => setTimeout(resolve, 60));

/** A turn whose page does that at the entry of the timeline that it picks. */
async function turnThat(
  t: TestContext,
  server: TurnServer,
  at: (entry: TimelineEntry) => boolean,
  act: (turn: TurnHandle) => void,
  options: Partial<ClientOptions> = {},
) {
  await server.listen(t);
  const told: TimelineEntry[] = [];
  const { client } = clientOf(server, {
    ...options,
    onTimeline: (entry) => {
      told.push(entry);
      if (at(entry)) act(turn);
    },
  });
  const turn: TurnHandle = client.start(PROMPT);
  t.after(() => turn.close());
  return { turn, told };
}

for (const [kind, behave, what = kind] of [
  ['request', stalled()],
  ['open', stalled()],
  ['ping', stalled()],
  ['event', stalled(1)],
  ['dropped', dead],
  ['dropped', refuse(404, 'gone'), 'refusal'],
  ['retry', dead],
] as const)
  test(`a turn that is left as it tells of a "${what}" stays left, and holds no socket`, async (t) => {
    const server = new TurnServer(says('a', 'b'), () => behave);
    const { turn, told } = await turnThat(
      t,
      server,
      (entry) => entry.kind === kind,
      (self) => self.close(),
      { backoff: { baseMs: 1, capMs: 1, maxFailures: kind === 'dropped' ? 1 : 5 } },
    );
    assert.equal((await turn.finished).status, 'closed');
    await until(() => server.open === 0);
    await quiet();
    assert.equal(turn.getSnapshot().status, 'closed');
    assert.equal(told.filter((entry) => entry.kind === 'settled').length, 1);
    assert.equal(told.filter((entry) => entry.kind === 'request').length, 1);
  });

for (const [what, behave, paints] of [
  ['as it opens', stalled(1), false],
  ['in a paint of its drop', dead, true],
] as const)
  test(`a turn that is left ${what} can still be stopped`, async (t) => {
    if (paints) {
      Object.assign(globalThis, { requestAnimationFrame: (paint: () => void) => paint() });
      t.after(() => Reflect.deleteProperty(globalThis, 'requestAnimationFrame'));
    }
    const server = await new TurnServer(says('a'), (_, { call }) =>
      call === 'cancel_turn' ? cancelled : behave,
    ).listen(t);
    const turn: TurnHandle = clientOf(server, {
      onTimeline: ({ kind }) => void (kind === 'open' && turn.close()),
    }).client.resume({ turnId: newTurnId() });
    turn.subscribe(() => void (turn.getSnapshot().connection.problem && turn.close()));
    await turn.finished;
    await until(() => server.open === 0);
    await turn.stop();
    assert.equal(server.calls('cancel_turn').length, 1);
  });

test('a handler that leaves the turn has the event, and gets no other', async (t) => {
  const server = await new TurnServer(says('a', 'b', 'c')).listen(t);
  const handled: number[] = [];
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: ({ id }) => {
      handled.push(id);
      if (id === 2) turn.close();
    },
  });
  await turn.finished;
  await quiet();
  assert.deepEqual([handled, turn.save().state.text], [[1, 2], 'ab']);
});

test('a handler that connects anew, at every event, loses and repeats none', async (t) => {
  const server = await new TurnServer(says('a', 'b', 'c')).listen(t);
  const handled: number[] = [];
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: ({ id }) => {
      handled.push(id);
      turn.reconnect();
    },
  });
  assert.equal((await turn.finished).text, 'abc');
  assert.deepEqual(handled, [1, 2, 3, 4]);
});

test('a page that connects anew as it hears of a drop is told of no attempt that is due', async (t) => {
  const server = new TurnServer(says('a', 'b'), [cutAfter(1), stalled(1)]);
  const isFirst = ({ kind }: TimelineEntry) => kind === 'dropped' && server.seen.length === 1;
  const backoff = { baseMs: 600_000, capMs: 600_000 };
  const { turn } = await turnThat(t, server, isFirst, ({ reconnect }) => reconnect(), { backoff });
  await until(() => turn.getSnapshot().text === 'ab');
  assert.equal(turn.getSnapshot().connection.retryAt, undefined);
});

test('a handler that stops the turn asks once', async (t) => {
  const server = await new TurnServer([['token', 'a']]).listen(t);
  server.behave = (_, { call }) => {
    if (call !== 'cancel_turn') return server.journal.length > 1 ? undefined : stalled(1);
    server.journal = [...server.journal, ['done', { reason: 'cancelled' }]];
    return cancelled;
  };
  const turn = clientOf(server, { idleMs: 300 }).client.start(PROMPT, {
    onEvent: () => void turn.stop(),
  });
  assert.deepEqual((await turn.finished).status, 'cancelled');
  assert.equal(server.calls('cancel_turn').length, 1);
});

test('a handler that decides the step of its own event is heard', async (t) => {
  const server = await new TurnServer([ask]).listen(t);
  server.behave = (_, { call }) => {
    if (call === 'run_tool_step')
      server.journal = [ask, ['tool_start', { step: 1, tool: 'refund', args: {} }], ...says('a')];
    return undefined;
  };
  let decided: Promise<void> | undefined;
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: (event: TurnEvent) => {
      if (event.type === 'tool_pending') decided = turn.approve(event.data.step);
    },
  });
  assert.equal((await turn.finished).text, 'a');
  await decided;
  assert.equal(server.calls('run_tool_step').length, 1);
});

test('a handler that saves the turn has it as before its event', async (t) => {
  const server = await new TurnServer(says('a', 'b')).listen(t);
  const texts: string[] = [];
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: () => void texts.push(turn.save().state.text),
  });
  await turn.finished;
  assert.deepEqual(texts, ['', 'a', 'ab']);
});

test('whatever a handler throws, the event comes again', async (t) => {
  for (const thrown of [undefined, null, 'words', Symbol('s'), Object.create(null)]) {
    const server = await new TurnServer(says('a', 'b')).listen(t);
    let broken = true;
    const { client, timeline } = clientOf(server);
    const turn = client.start(PROMPT, {
      onEvent: ({ id }) => {
        if (id !== 2 || !broken) return;
        broken = false;
        throw thrown;
      },
    });
    assert.equal((await turn.finished).text, 'ab');
    const dropped = timeline.find((entry) => entry.kind === 'dropped');
    assert.equal(dropped?.kind === 'dropped' && dropped.why, 'handler');
  }
});

test('listeners may subscribe and unsubscribe, themselves and others, within a paint', async (t) => {
  const server = await new TurnServer(says('a'), [cutAfter(1)]).listen(t);
  const turn = clientOf(server).client.start(PROMPT);
  const heard: string[] = [];
  let again = () => {};
  const renewed = () => {
    heard.push('renewed');
    again();
    again = turn.subscribe(renewed);
  };
  again = turn.subscribe(renewed);
  const offs: (() => void)[] = [];
  const removes = () => {
    heard.push('removes');
    for (const off of offs) off();
  };
  offs.push(turn.subscribe(removes));
  offs.push(turn.subscribe(() => heard.push('removed')));
  const { length } = await turn.finished.then(() => heard);
  assert.equal(heard.filter((each) => each === 'removes').length, 1);
  assert.equal(heard.includes('removed'), false);
  assert.ok(length < 20, `${length} calls`);
});

/** Have this called for `requestAnimationFrame`. */
function frames(t: TestContext, request: (paint: () => void) => void): void {
  Object.defineProperty(globalThis, 'requestAnimationFrame', {
    value: request,
    configurable: true,
  });
  t.after(() => Reflect.deleteProperty(globalThis, 'requestAnimationFrame'));
}

test('a function that is subscribed twice is called twice, and once when one of them is taken back', async (t) => {
  const server = await new TurnServer(says('a'), [stalled()]).listen(t);
  const paints: (() => void)[] = [];
  frames(t, (paint) => paints.push(paint));
  const turn = clientOf(server).client.start(PROMPT);
  t.after(() => turn.close());
  let calls = 0;
  const listener = () => void calls++;
  const off = turn.subscribe(listener);
  turn.subscribe(listener);
  for (const paint of paints.splice(0)) paint();
  assert.equal(calls, 2);
  off();
  off();
  turn.reconnect();
  for (const paint of paints.splice(0)) paint();
  assert.equal(calls, 3);
});

test('a page that paints at once and acts on every paint opens one connection at a time', async (t) => {
  const server = await new TurnServer([ask]).listen(t);
  server.behave = (_, { call }) => {
    if (call === 'run_tool_step')
      server.journal = [ask, ['tool_start', { step: 1, tool: 'refund', args: {} }], ...says('a')];
    return undefined;
  };
  frames(t, (paint) => paint());
  const turn = clientOf(server).client.start(PROMPT);
  turn.subscribe(() => {
    for (const { step } of turn.getSnapshot().pending) void turn.approve(step);
  });
  assert.equal((await turn.finished).text, 'a');
  assert.deepEqual(
    server.seen.map(({ call }) => call),
    ['start_turn', 'run_tool_step'],
  );
});
