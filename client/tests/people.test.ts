/** What a person does with a turn: decides its steps, stops it, leaves it, comes back to it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newTurnId, type SavedTurn, TurnError } from '../src/index.js';
import {
  type Behaviour,
  cancelled,
  clientOf,
  cutAfter,
  dead,
  type Entry,
  frame,
  mute,
  PING,
  PROMPT,
  refuse,
  type Seen,
  says,
  stalled,
  stream,
  TurnServer,
  until,
} from './support/server.js';

const FAR = '2030-01-01T00:00:00Z';
const ask = (step: number, expiresAt = FAR): Entry => [
  'tool_pending',
  { step, tool: 'refund', args: { step }, expiresAt },
];
const begin = (step: number): Entry => ['tool_start', { step, tool: 'refund', args: { step } }];
const end = (step: number, status = 'ok'): Entry => [
  'tool_end',
  { step, tool: 'refund', status, result: null },
];

const code = (wanted: string) => (error: unknown) =>
  error instanceof TurnError && error.problem.code === wanted;

/** A turn that asks about two steps, and goes on as they are decided. */
async function asking(t: Parameters<TurnServer['listen']>[0]) {
  const server = new TurnServer([['token', 'a'], ask(1), ask(2)]);
  server.behave = (_, { call, body }: Seen) => {
    if (call !== 'run_tool_step') return undefined;
    const { step, decision } = body as { step: number; decision: string };
    const events = decision === 'approve' ? [begin(step), end(step)] : [end(step, 'denied')];
    const rest: Entry[] = step === 1 ? [ask(2)] : [['done', { reason: 'stop' }]];
    server.journal = [...server.journal, ...events, ...rest];
    return (answer, _rest, { cursor }) => {
      stream(answer);
      answer.end(server.rest(cursor));
    };
  };
  return server.listen(t);
}

test('a turn waits for a person, connected to nothing; decisions run one after the other', async (t) => {
  const server = await asking(t);
  const { client, timeline } = clientOf(server);
  const turn = client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  const { pending } = turn.getSnapshot();
  assert.deepEqual(
    pending.map(({ step, args, expiresAt }) => [step, args, expiresAt]),
    [
      [1, { step: 1 }, FAR],
      [2, { step: 2 }, FAR],
    ],
  );
  await until(() => server.open === 0);
  const both = [turn.approve(1), turn.deny(2)];
  await Promise.all(both);
  const view = await turn.finished;
  assert.deepEqual(
    view.steps.map(({ status }) => status),
    ['ok', 'denied'],
  );
  assert.deepEqual([view.status, view.pending], ['done', []]);
  assert.ok(!timeline.some(({ kind }) => kind === 'dropped'), 'no end of these is a drop');
  assert.deepEqual(
    server.calls('run_tool_step').map(({ body, cursor }) => [body, cursor]),
    [
      [{ step: 1, decision: 'approve' }, 3],
      [{ step: 2, decision: 'deny' }, 6],
    ],
  );
});

test('a step that is decided or unknown needs no call', async (t) => {
  const server = await asking(t);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  await turn.approve(1);
  await until(() => turn.getSnapshot().steps[0]?.status === 'ok');
  await turn.approve(1);
  await assert.rejects(turn.approve(7), code('not_pending'));
  assert.equal(server.calls('run_tool_step').length, 1);
  turn.close();
});

test('a decision is posted until it is recorded, and not judged as waiting after that', async (t) => {
  const journal: Entry[] = [ask(1)];
  const server = await new TurnServer(journal).listen(t);
  const attempts: Behaviour[] = [
    dead,
    refuse(503, 'turn_busy'),
    // Recorded, and cut cleanly before anything came of it.
    (answer) => {
      server.journal = [...journal, begin(1), end(1), ['done', { reason: 'stop' }]];
      stream(answer);
      answer.end(PING);
    },
  ];
  server.behave = (_, { call }) => (call === 'run_tool_step' ? attempts.shift() : undefined);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  await turn.approve(1);
  assert.equal(
    turn.getSnapshot().status === 'done' || turn.save().state.steps[0]?.status,
    'decided',
  );
  const view = await turn.finished;
  assert.equal(view.steps[0]?.status, 'ok');
  assert.equal(server.calls('run_tool_step').length, 3);
  // After `turn_busy` it looked what the turn does before it asked again.
  assert.deepEqual(
    server.seen.map(({ call }) => call),
    ['start_turn', 'run_tool_step', 'run_tool_step', 'resume_turn', 'run_tool_step', 'resume_turn'],
  );
});

test('a decision waits for no back-off', async (t) => {
  const server = await asking(t);
  const decide = server.behave as (n: number, seen: Seen) => Behaviour | undefined;
  server.behave = (n, seen) => (n ? decide(n, seen) : cutAfter(3));
  const { client, timeline } = clientOf(server, { backoff: { baseMs: 600_000, capMs: 600_000 } });
  const turn = client.start(PROMPT);
  t.after(() => turn.close());
  // Not `retryAt`, which a delay that is drawn short clears before it is painted.
  await until(() => timeline.some(({ kind }) => kind === 'retry'));
  await turn.approve(1);
});

test('a decision of a turn that is over says so, and what is wrong if it failed', async (t) => {
  const server = await new TurnServer([ask(1)]).listen(t);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  const late = turn.approve(1);
  turn.close();
  await assert.rejects(late, code('not_pending'));
  await assert.rejects(turn.deny(1), code('not_pending'));
  assert.equal(server.calls('run_tool_step').length, 0);
  const failing = await new TurnServer([ask(1)], (n) => (n ? dead : cutAfter(1))).listen(t);
  const failed = clientOf(failing).client.start(PROMPT);
  assert.equal((await failed.finished).status, 'failed');
  await assert.rejects(failed.approve(1), code('network'));
});

test('a decision that could not be sent before the turn was over says so', async (t) => {
  let push = (_: Entry) => {};
  const server = await new TurnServer(
    [begin(1), ask(2)],
    [
      (answer, rest) => {
        stream(answer);
        answer.write(rest);
        push = (entry) => void answer.write(frame(entry, 2));
      },
    ],
  ).listen(t);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().pending.length === 1);
  const refused = assert.rejects(turn.approve(2), code('not_pending'));
  push(['done', { reason: 'cancelled' }]);
  assert.equal((await turn.finished).status, 'cancelled');
  await refused;
  assert.equal(server.seen.length, 1);
});

test('there is nothing left to decide of a turn that is refused for good', async (t) => {
  const server = await asking(t);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  server.behave = () => refuse(410, 'gone');
  turn.reconnect();
  const { status, pending } = await turn.finished;
  assert.deepEqual([status, pending], ['error', []]);
});

test('a refused decision is refused, not the turn', async (t) => {
  const server = await new TurnServer([ask(1)]).listen(t);
  server.behave = (_, { call }) =>
    call === 'run_tool_step' ? refuse(404, 'unknown_step') : undefined;
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().status === 'waiting');
  await assert.rejects(turn.approve(1), code('unknown_step'));
  await until(() => turn.getSnapshot().status === 'waiting');
  turn.close();
});

test('when an approval expires, the turn is looked at again, and again until the server knows', async (t) => {
  const past = new Date(Date.now() - 60_000).toISOString();
  const server = await new TurnServer([ask(1, past)]).listen(t);
  const { client, timeline } = clientOf(server);
  const turn = client.start(PROMPT);
  // This clock is ahead of the server's, where the approval still counts.
  await until(() => timeline.filter(({ kind }) => kind === 'settled').length === 2);
  const [first, second] = timeline.filter(({ kind }) => kind === 'request');
  assert.ok((second?.at ?? 0) - (first?.at ?? 0) >= 4_990);
  server.journal = [...server.journal, end(1, 'expired'), ['done', { reason: 'stop' }]];
  turn.reconnect();
  assert.equal((await turn.finished).steps[0]?.status, 'expired');
});

test('the stop is asked for until it is answered, and shown when the turn says so', async (t) => {
  const server = await new TurnServer([['token', 'a']]).listen(t);
  const answers: Behaviour[] = [dead, refuse(503, 'storage_unavailable'), refuse(401, 'x')];
  server.behave = (_, { call }) => {
    if (call !== 'cancel_turn') return server.journal.length === 1 ? stalled(1) : undefined;
    const next = answers.shift();
    if (next) return next;
    server.journal = [...server.journal, ['done', { reason: 'cancelled' }]];
    return cancelled;
  };
  const turn = clientOf(server, { idleMs: 400 }).client.start(PROMPT);
  await until(() => turn.getSnapshot().text === 'a');
  const paints: boolean[] = [];
  turn.subscribe(() => paints.push(turn.getSnapshot().stopping));
  const stopped = turn.stop();
  assert.equal(turn.stop(), stopped);
  assert.equal(turn.save().stopping, true);
  await stopped;
  const view = await turn.finished;
  assert.deepEqual([view.status, view.end, view.stopping], ['cancelled', 'cancelled', false]);
  assert.equal(paints.indexOf(false), paints.length - 1, 'stopping until it is cancelled');
  assert.equal(server.calls('cancel_turn').length, 4);
  assert.equal(server.calls('cancel_turn')[0]?.turnId, turn.turnId);
});

test('a stop that is refused for good says so, and the turn goes on', async (t) => {
  const server = await new TurnServer(says('a')).listen(t);
  let go = () => {};
  server.behave = (_, { call }) =>
    call === 'cancel_turn'
      ? refuse(410, 'gone')
      : (answer, rest) => {
          stream(answer);
          go = () => void answer.end(rest);
        };
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => server.open > 0);
  await assert.rejects(turn.stop(), code('gone'));
  await until(() => server.calls('start_turn').length > 1);
  go();
  assert.equal((await turn.finished).status, 'done');
});

test('a stop before the start arrived: the start is not posted again', async (t) => {
  const server = await new TurnServer([]).listen(t);
  server.behave = (_, { call }) => (call === 'cancel_turn' ? refuse(404, 'unknown_turn') : dead);
  const backoff = { baseMs: 500, capMs: 500, maxFailures: 5 };
  const { client } = clientOf(server, { backoff, answerMs: 300 });
  const turn = client.start(PROMPT);
  await until(() => server.seen.length > 0);
  await turn.stop();
  const view = await turn.finished;
  assert.deepEqual([view.status, view.end], ['cancelled', 'cancelled']);
  assert.equal(server.calls('start_turn').length, 1);
});

test('a stop reaches the turn of a start whose connection was lost, and which arrives later', async (t) => {
  const server = await new TurnServer([]).listen(t);
  let exists = false;
  server.behave = (_, { call }) => {
    if (exists) {
      server.journal = [['done', { reason: 'cancelled' }]];
      return call === 'cancel_turn' ? cancelled : undefined;
    }
    if (call === 'cancel_turn') return refuse(404, 'unknown_turn');
    setTimeout(() => {
      exists = true;
    }, 300);
    return dead;
  };
  const backoff = { baseMs: 600_000, capMs: 600_000 };
  const { client, timeline } = clientOf(server, { backoff });
  const turn = client.start(PROMPT);
  await until(() => timeline.some(({ kind }) => kind === 'retry'));
  await turn.stop();
  assert.equal(exists, true);
  assert.equal((await turn.finished).status, 'cancelled');
});

test('a stop lets a start through that is under way: there is a turn to stop then', async (t) => {
  const server = await new TurnServer([]).listen(t);
  let aborted = false;
  server.behave = (_, { call }) => {
    if (call === 'cancel_turn') {
      server.journal = [['done', { reason: 'cancelled' }]];
      return cancelled;
    }
    if (call === 'resume_turn') return undefined;
    // Where it is cut before it is answered, it never was.
    return (answer) => {
      answer.on('close', () => {
        aborted ||= !answer.headersSent;
      });
      setTimeout(() => stream(answer), 50);
    };
  };
  const turn = clientOf(server, { slowMs: 10_000 }).client.start(PROMPT);
  await until(() => server.seen.length > 0);
  await turn.stop();
  assert.equal((await turn.finished).status, 'cancelled');
  assert.equal(aborted, false);
  assert.deepEqual(
    server.seen.map(({ call }) => call),
    ['start_turn', 'cancel_turn', 'resume_turn'],
  );
});

test('a stop waits for no start that is slow: a proxy may hold its answer', async (t) => {
  for (const early of [true, false]) {
    const server = await new TurnServer([]).listen(t);
    server.behave = (_, { call }) => {
      if (call !== 'cancel_turn') return server.journal.length ? undefined : mute;
      server.journal = [['done', { reason: 'cancelled' }]];
      return cancelled;
    };
    const turn = clientOf(server, { slowMs: 100, answerMs: 600_000 }).client.start(PROMPT);
    await until(() => server.seen.length > 0);
    if (!early) await until(() => turn.getSnapshot().connection.notice === 'no_answer');
    await turn.stop();
    assert.equal((await turn.finished).status, 'cancelled');
  }
});

test('a stop of a start that was refused for now is answered at once: nothing is under way', async (t) => {
  const server = await new TurnServer([]).listen(t);
  server.behave = (_, { call }) =>
    call === 'cancel_turn'
      ? refuse(404, 'unknown_turn')
      : refuse(429, 'too_many_turns', { 'Retry-After': '100' });
  const { client, timeline } = clientOf(server, { answerMs: 600_000 });
  const turn = client.start(PROMPT);
  await until(() => timeline.some(({ kind }) => kind === 'retry'));
  turn.stop().catch(() => {});
  await until(() => turn.getSnapshot().status === 'cancelled');
  assert.equal(server.calls('cancel_turn').length, 1);
});

test('a saved stop of a turn that never began posts no start', async (t) => {
  const server = await new TurnServer([]).listen(t);
  server.behave = (_, { call }) => (call === 'cancel_turn' ? refuse(404, 'unknown_turn') : mute);
  const { client } = clientOf(server, { answerMs: 300 });
  const before = client.start(PROMPT);
  await until(() => server.seen.length === 1);
  const saved = { ...before.save(), stopping: true };
  before.close();
  const turn = client.resume(saved);
  assert.equal(turn.getSnapshot().stopping, true, 'before anything is painted');
  assert.equal((await turn.finished).status, 'cancelled');
  assert.equal(server.calls('start_turn').length, 1);
});

test('a stop while the start is on its way is asked for again until there is a turn', async (t) => {
  const server = await new TurnServer([]).listen(t);
  let exists = false;
  server.behave = (_, { call }) => {
    if (call === 'cancel_turn') {
      if (!exists) return refuse(404, 'unknown_turn');
      server.journal = [['done', { reason: 'cancelled' }]];
      return cancelled;
    }
    return exists
      ? undefined
      : (answer) =>
          void setTimeout(() => {
            exists = true;
            stream(answer);
          }, 300);
  };
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => server.seen.length > 0);
  await turn.stop();
  assert.equal((await turn.finished).status, 'cancelled');
  assert.ok(server.calls('cancel_turn').length > 1);
});

test('leaving is not stopping: the socket is released, nothing is cancelled, nothing is shown', async (t) => {
  const server = await new TurnServer(says('a', 'b'), [stalled(1)]).listen(t);
  const { client } = clientOf(server);
  const turn = client.start(PROMPT);
  await until(() => turn.getSnapshot().text === 'a');
  turn.close();
  assert.equal((await turn.finished).status, 'closed');
  await until(() => server.open === 0);
  assert.equal(server.calls('cancel_turn').length, 0);
  await assert.rejects(turn.approve(1));
  const back = client.resume(turn.save());
  assert.equal((await back.finished).text, 'ab');
  assert.equal(server.seen.at(-1)?.cursor, 1);
});

test('a stop that was asked for is sent although the turn is left', async (t) => {
  const server = await new TurnServer(says('a'), [stalled(1)]).listen(t);
  server.behave = (n, { call }) =>
    call === 'cancel_turn' ? cancelled : n ? undefined : stalled(1);
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().text === 'a');
  const stopped = turn.stop();
  turn.close();
  await stopped;
  assert.equal(server.calls('cancel_turn').length, 1);
});

test('a turn that was left can still be stopped', async (t) => {
  const server = await new TurnServer(says('a'), [stalled(1)]).listen(t);
  server.behave = (n, { call }) => (call === 'cancel_turn' ? cancelled : stalled(n ? 0 : 1));
  const turn = clientOf(server).client.start(PROMPT);
  await until(() => turn.getSnapshot().text === 'a');
  turn.close();
  await turn.stop();
  assert.equal(turn.getSnapshot().status, 'closed');
  assert.deepEqual(
    server.seen.map(({ call }) => call),
    ['start_turn', 'cancel_turn'],
  );
});

test('a turn that is stopped and left before it began shows nothing any more', async (t) => {
  const server = await new TurnServer([]).listen(t);
  server.behave = (_, { call }) => (call === 'cancel_turn' ? refuse(404, 'unknown_turn') : mute);
  const { client, timeline } = clientOf(server, { answerMs: 300 });
  const turn = client.start(PROMPT);
  await until(() => server.seen.length === 1);
  const stopped = turn.stop();
  turn.close();
  await stopped;
  assert.equal(turn.getSnapshot().status, 'closed');
  assert.equal(timeline.filter(({ kind }) => kind === 'settled').length, 1);
  assert.equal((await client.resume(turn.save()).finished).status, 'cancelled');
});

test('a reloaded page goes on where it was, by saved JSON', async (t) => {
  const journal: Entry[] = [['token', 'ab'], begin(1), ...says('c', 'd')];
  const server = await new TurnServer(journal, [cutAfter(2)]).listen(t);
  const { client } = clientOf(server, { backoff: { baseMs: 60_000 } });
  const before = client.start({ ...PROMPT, sessionId: 'chat' });
  await until(() => before.getSnapshot().status === 'reconnecting');
  const saved = JSON.parse(JSON.stringify(before.save())) as SavedTurn;
  before.close();
  const after = client.resume(saved);
  assert.deepEqual(
    [after.getSnapshot().text, after.getSnapshot().prompt, after.getSnapshot().sessionId],
    ['ab', 'hello', 'chat'],
  );
  const view = await after.finished;
  assert.deepEqual([view.text, view.steps[0]?.at], ['abcd', 2]);
  const last = server.seen.at(-1);
  assert.deepEqual([last?.call, last?.cursor, last?.turnId], ['resume_turn', 2, before.turnId]);
});

test('a page that was reloaded before the first event posts the start again, under the same id', async (t) => {
  const server = await new TurnServer(says('a'), [dead]).listen(t);
  const { client } = clientOf(server, { backoff: { baseMs: 60_000 } });
  const before = client.start(PROMPT);
  await until(() => server.seen.length === 1);
  const saved = before.save();
  before.close();
  assert.equal((await client.resume(saved).finished).text, 'a');
  assert.deepEqual(server.seen[1]?.body, PROMPT);
  assert.equal(server.seen[0]?.turnId, server.seen[1]?.turnId);
});

test('a start of long ago is not posted again, but asked for: its turn may have run, and be forgotten', async (t) => {
  for (const [behave, wanted] of [
    [undefined, ['done', 'a', undefined]],
    [refuse(404, 'unknown_turn'), ['error', '', 'unknown_turn']],
  ] as const) {
    const server = await new TurnServer(says('a'), (n) => (n ? behave : dead)).listen(t);
    const { client } = clientOf(server, { backoff: { baseMs: 60_000 } });
    const before = client.start(PROMPT);
    await until(() => server.seen.length === 1);
    const saved = before.save();
    before.close();
    const past = { ...saved, postedAt: Number(saved.postedAt) - 7_201_000 };
    const view = await client.resume(past).finished;
    assert.deepEqual([view.status, view.text, view.error?.code], wanted);
    assert.equal(server.calls('start_turn').length, 1);
  }
});

test('nor is it by a page that slept with it', async (t) => {
  const server = await new TurnServer(says('a'), [dead]).listen(t);
  const { client } = clientOf(server, { backoff: { baseMs: 600_000, capMs: 600_000 } });
  const turn = client.start(PROMPT);
  await until(() => server.seen.length === 1);
  const now = Date.now;
  t.after(() => {
    Date.now = now;
  });
  Date.now = () => now() + 7_201_000;
  turn.reconnect();
  await turn.finished;
  assert.deepEqual(
    server.seen.map(({ call }) => call),
    ['start_turn', 'resume_turn'],
  );
});

test('a turn that was saved at its end connects to nothing', async (t) => {
  const server = await new TurnServer(says('a')).listen(t);
  const { client } = clientOf(server);
  const over = client.start(PROMPT);
  await over.finished;
  const again = client.resume(JSON.parse(JSON.stringify(over.save())));
  assert.deepEqual([again.getSnapshot().status, again.getSnapshot().text], ['done', 'a']);
  await again.finished;
  await again.stop();
  assert.equal(server.seen.length, 1);
});

test('a saved stop goes on, and one of another version or form is read from the start', async (t) => {
  const server = await new TurnServer(says('a', 'b')).listen(t);
  server.behave = (_, { call }) => (call === 'cancel_turn' ? cancelled : stalled(1));
  const { client } = clientOf(server);
  const one = client.start(PROMPT);
  await until(() => one.getSnapshot().text === 'a');
  const saved = one.save();
  one.close();
  client.resume({ ...saved, stopping: true }).close();
  await until(() => server.calls('cancel_turn').length === 1);
  server.behave = [];
  for (const version of [1, 2]) {
    const other = { ...saved, version, state: null } as unknown as SavedTurn;
    assert.equal((await client.resume(other).finished).text, 'ab');
  }
});

test('turn ids are long, fresh and plain, also where crypto.randomUUID is absent', () => {
  const { randomUUID } = crypto;
  try {
    Object.defineProperty(crypto, 'randomUUID', { value: undefined, configurable: true });
    const ids = Array.from({ length: 1_000 }, newTurnId);
    for (const id of ids) assert.match(id, /^[\d-]{20,64}$/);
    assert.equal(new Set(ids).size, ids.length);
  } finally {
    Object.defineProperty(crypto, 'randomUUID', { value: randomUUID, configurable: true });
  }
});
