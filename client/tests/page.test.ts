/** What a browser's page brings with it: frames, hiding, leaving, freezing, the network. */

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import {
  cancelled,
  clientOf,
  cutAfter,
  dead,
  mute,
  PROMPT,
  refuse,
  says,
  stalled,
  stream,
  TurnServer,
  until,
} from './support/server.js';

/** A page, as far as this package knows one; its frames come when a test says so. */
class Page {
  frames: (() => void)[] = [];
  readonly document = { hidden: false };
  readonly #window = new EventTarget();

  constructor() {
    this.define('document', this.document);
    this.define('addEventListener', this.#window.addEventListener.bind(this.#window));
    this.define('removeEventListener', this.#window.removeEventListener.bind(this.#window));
    this.define('requestAnimationFrame', (paint: () => void) => this.frames.push(paint));
    this.define('navigator', { onLine: true });
  }

  define(name: string, value: unknown): void {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }

  /** To the window: it hears, as it captures, what goes to the document, too. */
  tell(type: string): void {
    this.#window.dispatchEvent(new Event(type));
  }

  hide(hidden: boolean): void {
    this.document.hidden = hidden;
    this.tell('visibilitychange');
  }

  frame(): void {
    const due = this.frames;
    this.frames = [];
    for (const paint of due) paint();
  }
}

let page: Page;
beforeEach(() => {
  page = new Page();
});

/** Follow a turn and count its paints. */
async function shown(
  t: Parameters<TurnServer['listen']>[0],
  server: TurnServer,
  options: Parameters<typeof clientOf>[1] = {},
) {
  await server.listen(t);
  const { client, timeline } = clientOf(server, options);
  const turn = client.start(PROMPT);
  t.after(() => turn.close());
  const paints: string[] = [];
  turn.subscribe(() => paints.push(turn.getSnapshot().text));
  const handled = () => turn.save().state.text;
  return { turn, paints, handled, timeline };
}

test('5,000 tokens are one paint per frame, and the end is painted without one', async (t) => {
  const words = Array.from({ length: 5_000 }, (_, at) => `${at} `);
  const first = words.slice(0, 2_000).join('');
  const server = new TurnServer(says(...words), [
    (answer, rest) => {
      stream(answer);
      const frames = rest.split('\n\n');
      answer.write(`${frames.slice(0, 2_000).join('\n\n')}\n\n`);
      proceed = () => void answer.end(frames.slice(2_000).join('\n\n'));
    },
  ]);
  let proceed = () => {};
  const { turn, paints, handled } = await shown(t, server);
  await until(() => handled() === first);
  assert.deepEqual([turn.getSnapshot().text, page.frames.length], ['', 1]);
  page.frame();
  assert.deepEqual([turn.getSnapshot().text, paints.length], [first, 1]);
  assert.equal(turn.getSnapshot(), turn.getSnapshot());
  proceed();
  const view = await turn.finished;
  assert.deepEqual([view.text, paints.length], [words.join(''), 2]);
  // The frame that it was due for paints nothing more.
  page.frame();
  assert.equal(paints.length, 2);
});

test('where no frame ever comes, all is painted: at the end, at giving up, at a wait', async (t) => {
  const { turn } = await shown(t, new TurnServer(says('a', 'b')));
  assert.equal((await turn.finished).text, 'ab');
  const dying = await shown(t, new TurnServer(says('a'), (n) => (n ? dead : cutAfter(1))));
  assert.deepEqual((await dying.turn.finished).status, 'failed');
  assert.equal(dying.turn.getSnapshot().text, 'a');
  const asking = await shown(
    t,
    new TurnServer([
      ['token', 'a'],
      ['tool_pending', { step: 1, tool: 'x', args: {}, expiresAt: '2030-01-01T00:00:00Z' }],
    ]),
  );
  await until(() => asking.turn.getSnapshot().status === 'waiting');
  asking.turn.close();
  assert.equal(asking.turn.getSnapshot().status, 'closed');
});

test('a tab that is hidden paints at once what is due, and goes on without frames', async (t) => {
  const server = new TurnServer(says('a', 'b'), [
    (answer, rest) => {
      stream(answer);
      const [one, two, end] = rest.split('\n\n');
      answer.write(`${one}\n\n`);
      proceed.push(
        () => answer.write(`${two}\n\n`),
        () => answer.end(`${end}\n\n`),
      );
    },
  ]);
  const proceed: (() => void)[] = [];
  const { turn, handled } = await shown(t, server);
  await until(() => handled() === 'a');
  assert.equal(turn.getSnapshot().text, '');
  page.hide(true);
  assert.equal(turn.getSnapshot().text, 'a');
  proceed[0]?.();
  await until(() => turn.getSnapshot().text === 'ab');
  proceed[1]?.();
  assert.equal((await turn.finished).status, 'done');
});

test('`online` connects at once: out of a back-off, and in place of an old connection', async (t) => {
  const server = new TurnServer(says('a', 'b', 'c'), [cutAfter(1), stalled(1)]);
  const { turn, timeline } = await shown(t, server, { backoff: { baseMs: 60_000, capMs: 60_000 } });
  await until(() => timeline.some(({ kind }) => kind === 'retry'));
  page.tell('online');
  await until(() => turn.save().state.text === 'ab');
  page.tell('online');
  assert.equal((await turn.finished).text, 'abc');
  assert.deepEqual(
    server.seen.map(({ cursor }) => cursor),
    [0, 1, 2],
  );
});

test('what `Retry-After` asks holds against `online`, not against a person or a reload', async (t) => {
  const busy = refuse(503, 'at_capacity', { 'Retry-After': '60' });
  const server = new TurnServer(says('a'), [busy, busy]);
  const { turn, timeline } = await shown(t, server);
  const retries = () => timeline.filter(({ kind }) => kind === 'retry').length;
  await until(() => retries() === 1);
  page.tell('online');
  page.tell('focus');
  assert.equal(server.seen.length, 1);
  turn.reconnect();
  await until(() => retries() === 2);
  page.tell('pagehide');
  page.tell('pageshow');
  assert.equal((await turn.finished).text, 'a');
});

test('offline costs no attempts: it is said, and tried again when the network is back', async (t) => {
  const server = new TurnServer(says('a'), [dead]);
  page.define('navigator', { onLine: false });
  const { turn } = await shown(t, server, { backoff: { capMs: 60_000, maxFailures: 1 } });
  await until(() => {
    page.frame();
    return turn.getSnapshot().connection.notice === 'offline';
  });
  assert.deepEqual(
    [turn.getSnapshot().status, turn.getSnapshot().connection.failures],
    ['connecting', 0],
  );
  page.tell('online');
  assert.deepEqual(
    [(await turn.finished).text, turn.getSnapshot().connection.notice],
    ['a', undefined],
  );
});

test('a browser that takes itself for offline is not believed where events come', async (t) => {
  const server = new TurnServer(says('a', 'b', 'c'), [cutAfter(1), cutAfter(1)]);
  page.define('navigator', { onLine: false });
  const { turn, timeline } = await shown(t, server, { backoff: { baseMs: 1, capMs: 600_000 } });
  assert.equal((await turn.finished).text, 'abc');
  assert.ok(!timeline.some(({ kind }) => kind === 'notice'));
});

test('nor does it cost a stop any: it is asked for as long as the page is offline', async (t) => {
  const { random } = Math;
  t.after(() => {
    Math.random = random;
  });
  // No delays.
  Math.random = () => 0;
  const server = new TurnServer(says('a'), (_, { call }) =>
    call === 'cancel_turn' ? (server.calls(call).length > 150 ? cancelled : dead) : stalled(1),
  );
  page.define('navigator', { onLine: false });
  const { turn } = await shown(t, server);
  await turn.stop();
  assert.equal(server.calls('cancel_turn').length, 151);
});

test('a stop of a turn that was left does not wait for the network: nothing tells it of that', async (t) => {
  const { random } = Math;
  t.after(() => {
    Math.random = random;
  });
  // No delays but the one of a page that is offline.
  Math.random = () => 0;
  const server = new TurnServer(says('a'), (_, { call }) =>
    call === 'cancel_turn' ? (server.calls(call).length > 1 ? cancelled : dead) : stalled(1),
  );
  page.define('navigator', { onLine: false });
  const { turn, timeline } = await shown(t, server, { backoff: { capMs: 600_000 } });
  await until(() => turn.save().state.text === 'a');
  turn.close();
  void turn.stop();
  await until(() => !turn.save().stopping, 'the answer to the stop');
  assert.ok(timeline.some((each) => each.kind === 'notice' && each.notice === 'offline'));
});

test('nor is it said any longer once the page is back, when a stop keeps the start from leaving', async (t) => {
  let back = false;
  const server = new TurnServer([['done', { reason: 'cancelled' }]], (_, { call }) =>
    back ? (call === 'cancel_turn' ? cancelled : undefined) : dead,
  );
  page.define('navigator', { onLine: false });
  const { turn, timeline } = await shown(t, server, { backoff: { baseMs: 1, capMs: 60_000 } });
  await until(() => timeline.some(({ kind }) => kind === 'notice'));
  const stopped = turn.stop();
  page.define('navigator', { onLine: true });
  page.tell('online');
  await until(() => {
    page.frame();
    return turn.getSnapshot().connection.notice === undefined;
  });
  assert.equal(server.calls('start_turn').length, 1);
  back = true;
  await stopped;
  assert.equal((await turn.finished).status, 'cancelled');
});

test('what was said of an attempt is not said of the next', async (t) => {
  const server = new TurnServer(says('a'), () => dead);
  page.define('navigator', { onLine: false });
  const { turn, timeline } = await shown(t, server, { backoff: { baseMs: 1, capMs: 60_000 } });
  await until(() => timeline.some(({ kind }) => kind === 'notice'));
  page.define('navigator', { onLine: true });
  page.tell('online');
  assert.equal((await turn.finished).status, 'failed');
  assert.equal(turn.getSnapshot().connection.notice, undefined);
});

test('sockets are released on `pagehide`, and the turn is resumed on `pageshow`', async (t) => {
  const server = new TurnServer(says('a', 'b'), [stalled(1)]);
  const { turn } = await shown(t, server);
  await until(() => turn.save().state.text === 'a');
  page.tell('pagehide');
  await until(() => server.open === 0);
  page.tell('online');
  assert.equal(server.seen.length, 1);
  page.tell('pageshow');
  assert.equal((await turn.finished).text, 'ab');
  assert.equal(server.calls('cancel_turn').length, 0);
});

test('a page that was frozen for long drops the old read and resumes at once', async (t) => {
  const server = new TurnServer(says('a', 'b'), [stalled(1)]);
  const { turn, timeline } = await shown(t, server);
  await until(() => turn.save().state.text === 'a');
  page.hide(true);
  page.hide(false);
  assert.equal(server.seen.length, 1, 'a short look away changes nothing');
  page.hide(true);
  const now = Date.now;
  t.after(() => {
    Date.now = now;
  });
  Date.now = () => now() + 600_000;
  page.hide(false);
  assert.equal((await turn.finished).text, 'ab');
  assert.ok(timeline.some((each) => each.kind === 'dropped' && each.why === 'woken'));
});

test('a cold start is not taken for silence when the page is looked at', async (t) => {
  const server = new TurnServer(says('a'), [mute]);
  await shown(t, server, { idleMs: 20_000, answerMs: 60_000 });
  await until(() => server.seen.length === 1);
  const now = Date.now;
  t.after(() => {
    Date.now = now;
  });
  Date.now = () => now() + 30_000;
  page.tell('focus');
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(server.seen.length, 1);
  Date.now = () => now() + 90_000;
  page.tell('focus');
  await until(() => server.seen.length === 2);
});

test('a freeze releases the socket; thawing resumes', async (t) => {
  const server = new TurnServer(says('a', 'b'), [stalled(1)]);
  const { turn } = await shown(t, server);
  await until(() => turn.save().state.text === 'a');
  page.tell('freeze');
  await until(() => server.open === 0);
  page.tell('resume');
  assert.equal((await turn.finished).text, 'ab');
});

for (const type of ['resume', 'pageshow'])
  test(`a page that is back by "${type}" goes on though nobody looks at it`, async (t) => {
    const server = new TurnServer(says('a', 'b'), [stalled(1)]);
    const { turn } = await shown(t, server);
    await until(() => turn.save().state.text === 'a');
    page.hide(true);
    page.tell('freeze');
    await until(() => server.open === 0);
    page.tell(type);
    await until(() => turn.getSnapshot().status === 'done', 'the end');
  });

test('a page that is shown again looks what became of a wait: another tab may have decided', async (t) => {
  const server = new TurnServer([
    ['tool_pending', { step: 1, tool: 'x', args: {}, expiresAt: '2030-01-01T00:00:00Z' }],
  ]);
  const { turn } = await shown(t, server);
  await until(() => turn.getSnapshot().status === 'waiting');
  server.journal = [...server.journal, ['done', { reason: 'cancelled' }]];
  page.tell('focus');
  assert.equal((await turn.finished).status, 'cancelled');
});

test('however often a page comes back before its network, a turn that waits is not given up', async (t) => {
  const server = new TurnServer([
    ['tool_pending', { step: 1, tool: 'x', args: {}, expiresAt: '2030-01-01T00:00:00Z' }],
  ]);
  const { turn, timeline } = await shown(t, server, { backoff: { baseMs: 1, maxFailures: 3 } });
  const waits = () => timeline.filter((each) => each.kind === 'settled').length;
  await until(() => waits() === 1);
  server.behave = (n) => (n % 2 ? dead : undefined);
  for (let looks = 2; looks < 7; looks++) {
    page.tell('focus');
    await until(() => waits() === looks);
    const { status, connection } = turn.getSnapshot();
    assert.deepEqual([status, connection.failures], ['waiting', 0]);
  }
});

test('seven turns at once over HTTP/1.1: the seventh says why it has to wait, then gets through', async (t) => {
  const server = await new TurnServer(says('a'), (n) => (n < 6 ? stalled() : undefined)).listen(t);
  // A browser's rule: six connections to a host, further requests wait.
  let busy = 0;
  const queue: (() => void)[] = [];
  const six: typeof fetch = async (url, init) => {
    if (busy >= 6) await new Promise<void>((resolve) => queue.push(resolve));
    busy++;
    init?.signal?.addEventListener('abort', () => {
      busy--;
      queue.shift()?.();
    });
    return fetch(url, init);
  };
  const { client } = clientOf(server, { fetch: six });
  const turns = Array.from({ length: 6 }, () => client.start(PROMPT));
  await until(() => server.open === 6);
  const seventh = client.start(PROMPT);
  await until(() => {
    page.frame();
    return seventh.getSnapshot().connection.notice === 'no_answer';
  });
  turns[0]?.close();
  assert.equal((await seventh.finished).text, 'a');
  for (const turn of turns) turn.close();
});
