/** What the client does about answers that are errors. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Behaviour,
  clientOf,
  cutAfter,
  PROMPT,
  page,
  refuse,
  says,
  TurnServer,
  until,
} from './support/server.js';

test('401 gets one fresh token and one retry, the cursor kept; the next 401 later another', async (t) => {
  const server = await new TurnServer(says('a', 'b'), [
    cutAfter(1),
    refuse(401, 'unauthenticated'),
    cutAfter(1),
    refuse(401, 'unauthenticated'),
  ]).listen(t);
  const { client, refreshes } = clientOf(server);
  const view = await client.start(PROMPT).finished;
  assert.equal(view.text, 'ab');
  assert.deepEqual(
    server.seen.map(({ cursor }) => cursor),
    [0, 1, 1, 2, 2],
  );
  assert.deepEqual(refreshes, [false, false, true, false, true]);
  assert.equal(new Set(server.seen.map(({ appCheck }) => appCheck)).size, 5);
});

test('a 401 that a proxy made 200 of gets it, too', async (t) => {
  for (const code of ['app_check_failed', 'sign_in_failed']) {
    const server = await new TurnServer(says('a', 'b'), [cutAfter(1), refuse(200, code)]).listen(t);
    const { client, refreshes } = clientOf(server);
    assert.equal((await client.start(PROMPT).finished).text, 'ab');
    assert.deepEqual(refreshes, [false, false, true]);
    const never = await new TurnServer([], () => refuse(200, code)).listen(t);
    const view = await clientOf(never).client.start(PROMPT).finished;
    assert.deepEqual([view.status, view.error?.code, never.seen.length], ['error', code, 2]);
  }
});

test('a second 401 in a row stops', async (t) => {
  const server = await new TurnServer([], () => refuse(401, 'app_check_failed')).listen(t);
  const view = await clientOf(server).client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.error?.code], ['error', 'app_check_failed']);
  assert.equal(server.seen.length, 2);
});

test('other refusals stop at once, with the code, the words and the correlation id', async (t) => {
  for (const [status, code] of [
    [400, 'bad_body'],
    [404, 'unknown_turn'],
    [409, 'turn_conflict'],
    [410, 'gone'],
    [413, 'body_too_large'],
    [502, 'agent_failed'],
    [503, 'not_configured'],
  ] as const) {
    const server = await new TurnServer([], () => refuse(status, code)).listen(t);
    const view = await clientOf(server).client.start(PROMPT).finished;
    assert.equal(view.status, 'error');
    assert.deepEqual(view.error, {
      code,
      message: `says ${code}`,
      correlationId: 'abc',
      status,
    });
    assert.equal(server.seen.length, 1);
  }
});

test('a busy session names its turn, which can be attached to', async (t) => {
  const busy = refuse(409, 'session_busy', {}, { turnId: 'the-one-that-runs-already' });
  const server = await new TurnServer(says('a'), [busy]).listen(t);
  const { client } = clientOf(server);
  const { error } = await client.start({ ...PROMPT, sessionId: 's' }).finished;
  assert.equal(error?.turnId, 'the-one-that-runs-already');
  const view = await client.resume({ turnId: error?.turnId ?? '' }).finished;
  assert.equal(view.text, 'a');
  assert.deepEqual(server.seen[0]?.body, { prompt: 'hello', sessionId: 's' });
});

test('a start that was refused for good is over, and not posted again by a reloaded page', async (t) => {
  const server = await new TurnServer(says('a'), [refuse(409, 'session_busy')]).listen(t);
  const { client } = clientOf(server);
  const turn = client.start({ ...PROMPT, sessionId: 's' });
  const { error } = await turn.finished;
  // The session is free by now; what the user saw refused must not run.
  const again = client.resume(JSON.parse(JSON.stringify(turn.save())));
  const view = await again.finished;
  assert.deepEqual([view.status, view.error], ['error', error]);
  assert.equal(server.seen.length, 1);
});

test('who names a time to come back is asked again then, whatever the status', async (t) => {
  const server = await new TurnServer(says('a'), [
    refuse(200, 'at_capacity', { 'Retry-After': '0' }),
    refuse(403, 'rate_limited', { 'Retry-After': '0' }),
  ]).listen(t);
  assert.equal((await clientOf(server).client.start(PROMPT).finished).text, 'a');
});

test('what a proxy answers: 4xx stops, 5xx is tried again', async (t) => {
  const server = await new TurnServer(says('a'), [page(502), page(504, 'text/plain', '')]).listen(
    t,
  );
  assert.equal((await clientOf(server).client.start(PROMPT).finished).text, 'a');
  const gone = await new TurnServer([], () => page(403, 'text/html', 'x'.repeat(200_000))).listen(
    t,
  );
  const view = await clientOf(gone).client.start(PROMPT).finished;
  assert.deepEqual(
    [view.status, view.error?.code, view.error?.status],
    ['error', 'http_error', 403],
  );
});

test('a storm of 503 is outlived if it ends in time, given up if not', async (t) => {
  const storm = refuse(503, 'at_capacity');
  const passing = await new TurnServer(says('a'), Array(4).fill(storm)).listen(t);
  assert.equal((await clientOf(passing).client.start(PROMPT).finished).text, 'a');
  const lasting = await new TurnServer(says('a'), () => storm).listen(t);
  const view = await clientOf(lasting).client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.error?.code], ['failed', 'at_capacity']);
  assert.equal(lasting.seen.length, 5);
});

for (const [status, code] of [
  [503, 'at_capacity'],
  [429, 'too_many_turns'],
] as const)
  test(`Retry-After of a ${status} is waited for, and shown`, async (t) => {
    const server = await new TurnServer(says('a'), [
      refuse(status, code, { 'Retry-After': '1' }),
    ]).listen(t);
    const { client, timeline } = clientOf(server);
    const turn = client.start(PROMPT);
    await until(() => turn.getSnapshot().connection.retryAt !== undefined);
    const began = Date.now();
    assert.ok((turn.getSnapshot().connection.retryAt ?? 0) > began);
    assert.equal((await turn.finished).text, 'a');
    const retry = timeline.find((each) => each.kind === 'retry');
    assert.ok(retry?.kind === 'retry' && retry.delayMs >= 1_000);
    const again = timeline.filter((each) => each.kind === 'request')[1];
    assert.ok((again?.at ?? 0) - retry.at >= 990);
  });

test('204 is the end', async (t) => {
  const server = await new TurnServer([], () => (answer) => answer.writeHead(204).end()).listen(t);
  const view = await clientOf(server).client.resume({ turnId: 'x'.repeat(20) }).finished;
  assert.deepEqual([view.status, view.end, view.error], ['done', undefined, undefined]);
  assert.equal(server.seen.length, 1);
});

test('204 for a start is no word of the server: tried again, and never called done', async (t) => {
  const empty: Behaviour = (answer) => void answer.writeHead(204).end();
  const passing = await new TurnServer(says('a'), [empty]).listen(t);
  assert.equal((await clientOf(passing).client.start(PROMPT).finished).text, 'a');
  const lasting = await new TurnServer(says('a'), () => empty).listen(t);
  const view = await clientOf(lasting).client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.error?.code], ['failed', 'bad_content']);
});

test('an error event is the end: its code is shown, nothing is tried again', async (t) => {
  const failure = { code: 'no_progress', message: 'm', correlationId: 'c' };
  const server = await new TurnServer([
    ['token', 'a'],
    ['error', failure],
  ]).listen(t);
  const view = await clientOf(server).client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.text], ['error', 'a']);
  assert.deepEqual(view.error, failure);
  assert.equal(server.seen.length, 1);
});
