/** What proxies and networks make of the bytes: cut, recoded, mislabelled, held, answered by something else. */

import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { type TestContext, test } from 'node:test';
import { createGzip, gzipSync } from 'node:zlib';
import {
  type Behaviour,
  cancelled,
  clientOf,
  cutAfter,
  type Entry,
  frame,
  inPieces,
  PING,
  PROMPT,
  page,
  refuse,
  says,
  stalled,
  stream,
  TurnServer,
  until,
} from './support/server.js';

const TEXT = 'a那🌍é\u2028b\r\nc';
const JOURNAL = says(...TEXT);

/** The turn comes to its end, whole, though the first responses are these. */
async function comesThrough(
  t: TestContext,
  behave: readonly Behaviour[],
  options: Parameters<typeof clientOf>[1] = {},
) {
  const server = await new TurnServer(JOURNAL, behave).listen(t);
  const { client, timeline } = clientOf(server, options);
  const view = await client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.text], ['done', TEXT]);
  return { server, timeline, view };
}

const head = (answer: ServerResponse, headers: Record<string, string> = {}) =>
  answer.writeHead(200, { 'Content-Type': 'text/event-stream', ...headers });

for (const [name, ends] of Object.entries({ CRLF: '\r\n', CR: '\r' }))
  test(`lines that end with ${name} are read, cut at every byte, however the end is split`, async (t) => {
    const bytes = Buffer.from((PING + JOURNAL.map(frame).join('')).replaceAll('\n', ends));
    await comesThrough(t, [inPieces(1, (text) => text.replaceAll('\n', ends))]);
    for (let from = 0; from < bytes.length; from += 20)
      await Promise.all(
        Array.from({ length: 20 }, (_, at) => {
          const cut: Behaviour = (answer) => {
            head(answer);
            answer.write(bytes.subarray(0, from + at), () => answer.end());
          };
          return comesThrough(t, [cut]);
        }),
      );
  });

test('bytes that are no UTF-8 are damage: nothing of them is shown', async (t) => {
  const whole = Buffer.from(JOURNAL.map(frame).join(''));
  const at = whole.indexOf('那');
  for (const bad of [Buffer.from([0xff]), Buffer.from([0xe9, 0x82]), Buffer.from([0xc0, 0x80])]) {
    const damaged: Behaviour = (answer) => {
      head(answer);
      answer.end(Buffer.concat([whole.subarray(0, at), bad, whole.subarray(at + 3)]));
    };
    assert.equal((await comesThrough(t, [damaged])).server.seen.length, 2);
  }
});

test('a compressed stream is read as it comes, and cut at every byte', async (t) => {
  const whole = gzipSync(PING + JOURNAL.map(frame).join(''));
  for (let at = 0; at < whole.length; at += 3) {
    const cut: Behaviour = (answer) => {
      head(answer, { 'Content-Encoding': 'gzip' });
      answer.write(whole.subarray(0, at), () => answer.destroy());
    };
    await comesThrough(t, [cut]);
  }
  const zipped: Behaviour = (answer, rest) => {
    head(answer, { 'Content-Encoding': 'gzip' });
    const zip = createGzip();
    zip.pipe(answer);
    zip.end(PING + rest);
  };
  assert.equal((await comesThrough(t, [zipped])).server.seen.length, 1);
});

for (const [name, raw] of Object.entries<(rest: string) => string>({
  'a chunk whose length is no number': (rest) =>
    `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n${rest}\r\n`,
  'a chunk that is shorter than it says': (rest) =>
    `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n${rest}`,
  'a length that is too long': (rest) =>
    `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n${rest}`,
  'a length that is too short': (rest) =>
    `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 90\r\nConnection: close\r\n\r\n${rest}`,
  'bytes that are not compressed, though it says so': (rest) =>
    `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n${rest}`,
  'no HTTP': () => 'hello\r\n\r\n',
  'half of its headers': () => 'HTTP/1.1 200 OK\r\nContent-Ty',
}))
  test(`a response with ${name} is a drop`, async (t) => {
    const broken: Behaviour = (answer, rest) => {
      answer.socket?.end(raw(rest.slice(0, 200)));
    };
    // Not every `fetch` says what is wrong; silence ends it, then.
    await comesThrough(t, [broken, broken], { idleMs: 300, answerMs: 2_000 });
  });

for (const [name, headers] of Object.entries<Record<string, string>>({
  'no type': {},
  'an empty type': { 'Content-Type': '' },
  'JSON for a type': { 'Content-Type': 'application/json' },
  'text for a type': { 'Content-Type': 'text/plain; charset=utf-8' },
  'a longer type': { 'Content-Type': 'text/event-stream-ish' },
  'two types': { 'Content-Type': 'text/html, text/event-stream' },
}))
  test(`a stream with ${name} is no stream: nothing of it is shown, and it is tried again`, async (t) => {
    const mislabelled: Behaviour = (answer, rest) => {
      answer.writeHead(200, headers);
      answer.end(rest.replace('"a"', '"wrong"'));
    };
    const { timeline } = await comesThrough(t, [mislabelled]);
    assert.ok(timeline.some((entry) => entry.kind === 'dropped' && entry.why === 'bad_content'));
  });

for (const type of [
  'TEXT/EVENT-STREAM',
  'text/event-stream;charset=UTF-8',
  'text/event-stream ; x=y',
])
  test(`a stream of the type ${type} is one`, async (t) => {
    const { server } = await comesThrough(t, [
      (answer, rest) => {
        answer.writeHead(200, { 'Content-Type': type });
        answer.end(rest);
      },
    ]);
    assert.equal(server.seen.length, 1);
  });

test('errors that are not as the protocol has them end in words, never in a hang', async (t) => {
  const json = (text: string, status = 200) => page(status, 'application/json', text);
  for (const [behave, status, code] of [
    [json('null'), 'failed', 'bad_content'],
    [json('[]'), 'failed', 'bad_content'],
    [json('{"error": "words"}'), 'failed', 'bad_content'],
    [json('{"error": {"code": 7}}'), 'failed', 'bad_content'],
    [json('{"error": null}', 400), 'error', 'http_error'],
    [json('{"error": {"code": "gone"', 410), 'error', 'http_error'],
    [json('"x"', 500), 'failed', 'http_error'],
    [json('\ufeff{"error": {"code": "gone"}}', 410), 'error', 'gone'],
    [page(200, 'text/html', ''), 'failed', 'bad_content'],
    [page(511, 'text/html', 'log in'), 'failed', 'http_error'],
  ] as const) {
    const server = await new TurnServer([], () => behave).listen(t);
    const view = await clientOf(server).client.start(PROMPT).finished;
    assert.deepEqual([view.status, view.error?.code], [status, code]);
  }
});

test('an endless page is read no further than an error can be long', async (t) => {
  let ended = 0;
  const endless: Behaviour = (answer) => {
    answer.writeHead(200, { 'Content-Type': 'text/html' });
    const more = () => answer.write('x'.repeat(16_384), (error) => error || setImmediate(more));
    answer.on('close', () => ended++);
    more();
  };
  await comesThrough(t, [endless]);
  await until(() => ended === 1);
});

test('replays from before the cursor, again and again, are not progress', async (t) => {
  const again: Behaviour = (answer) => {
    stream(answer);
    answer.end(says('a', 'b').slice(0, 2).map(frame).join(''));
  };
  const server = await new TurnServer([], () => again).listen(t);
  const view = await clientOf(server).client.start(PROMPT).finished;
  assert.deepEqual([view.status, view.text, server.seen.length], ['failed', 'ab', 6]);
});

test('events out of order, repeated and far ahead: an id is never taken twice', async (t) => {
  const [a, b] = [frame(['token', 'a', 5]), frame(['token', 'b', 9_007_199_254_740_990])];
  const server = await new TurnServer([]).listen(t);
  server.behave = (n) => (answer) => {
    stream(answer);
    const end = frame(['done', { reason: 'stop' }, 9_007_199_254_740_991]);
    answer.end(
      n ? end : `${a}${frame(['token', 'x', 4])}${a}${b}${a}${b}${frame(['token', 'y', 6])}`,
    );
  };
  const view = await clientOf(server).client.start(PROMPT).finished;
  assert.deepEqual([view.text, view.status], ['ab', 'done']);
  assert.equal(server.seen[1]?.cursor, 9_007_199_254_740_990);
});

test('a rewind into a pair of surrogates, and one beyond the text, cut as JavaScript counts', async (t) => {
  const journal: Entry[] = [
    ['token', 'x🌍'],
    ['rewind', { to: 0, length: 2 }],
    ['token', '\udf0d!'],
    ['rewind', { to: 0, length: 9_000 }],
    ['rewind', { to: 0, length: 4 }],
    ['done', { reason: 'stop' }],
  ];
  const server = await new TurnServer(journal, [inPieces(1)]).listen(t);
  assert.equal((await clientOf(server).client.start(PROMPT).finished).text, 'x🌍!');
});

for (const [name, send] of Object.entries<(ok: typeof fetch) => typeof fetch>({
  'that throws at once': () => () => {
    throw new Error('no');
  },
  'that rejects with nothing': () => () => Promise.reject(),
  'that rejects with a symbol': () => () => Promise.reject(Symbol('no')),
  'that resolves with nothing': () => (async () => undefined) as unknown as typeof fetch,
  'whose body was read already':
    (ok) =>
    async (...request) => {
      const response = await ok(...request);
      await response.arrayBuffer();
      return response;
    },
  'whose body is held by another reader':
    (ok) =>
    async (...request) => {
      const response = await ok(...request);
      response.body?.getReader();
      return response;
    },
  'that cannot stream': () => async () => {
    const headers = { 'content-type': 'text/event-stream' };
    return new Response(null, { headers });
  },
  'of words instead of bytes': () => async () => {
    const body = new ReadableStream({ start: (controller) => controller.enqueue('id: 1') });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  },
}))
  test(`a fetch ${name} is a drop: tried again, then given up`, async (t) => {
    const server = await new TurnServer(JOURNAL).listen(t);
    let calls = 0;
    const bad = send(fetch);
    const { client } = clientOf(server, {
      fetch: (...request) => (++calls <= 2 ? bad(...request) : fetch(...request)),
    });
    assert.equal((await client.start(PROMPT).finished).text, TEXT);
    const never = clientOf(server, { fetch: bad }).client.start(PROMPT);
    const { status, error } = await never.finished;
    assert.equal(status, 'failed');
    assert.ok(error?.code === 'network' || error?.code === 'bad_content', error?.code);
  });

test('a fetch that ignores the signal keeps nobody waiting, and its late response is let go', async (t) => {
  const let_go: string[] = [];
  const body = (name: string) => new ReadableStream({ cancel: () => void let_go.push(name) });
  const late = (name: string, type: string, afterMs: number) =>
    new Promise<Response>((resolve) => {
      const headers = { 'content-type': type };
      setTimeout(() => resolve(new Response(body(name), { headers })), afterMs);
    });
  const server = await new TurnServer(JOURNAL).listen(t);
  const responses = [
    () => late('after its time', 'text/event-stream', 300),
    () => late('a silent stream', 'text/event-stream', 0),
    () => late('a silent page', 'text/html', 0),
  ];
  const { client } = clientOf(server, {
    idleMs: 100,
    answerMs: 150,
    fetch: (url, init) => responses.shift()?.() ?? fetch(url, { ...init, signal: null }),
  });
  assert.equal((await client.start(PROMPT).finished).text, TEXT);
  await until(() => let_go.length === 3, `${let_go}`);
});

for (const [name, tokens] of Object.entries({
  'throws at once': () => {
    throw new Error('no');
  },
  'rejects with nothing': () => Promise.reject(),
  'never comes': () => new Promise<string>(() => {}),
}))
  test(`a token that ${name} is a drop, whichever of the two it is`, async (t) => {
    const server = await new TurnServer(JOURNAL).listen(t);
    for (const which of ['appCheck', 'idToken'] as const) {
      const good = { appCheck: async () => 'x', idToken: async () => null };
      const { client } = clientOf(server, {
        answerMs: 40,
        tokens: { ...good, [which]: tokens },
        backoff: { baseMs: 1, capMs: 1, maxFailures: 2 },
      });
      const view = await client.start(PROMPT).finished;
      assert.deepEqual([view.status, view.error?.code], ['failed', 'tokens']);
    }
    assert.equal(server.seen.length, 0);
  });

test('of two tokens that fail, one of them at once, neither is left as a rejection to nobody', async (t) => {
  const unheard: unknown[] = [];
  const hear = (reason: unknown) => void unheard.push(reason);
  process.on('unhandledRejection', hear);
  t.after(() => process.off('unhandledRejection', hear));
  const server = await new TurnServer(JOURNAL).listen(t);
  const { client } = clientOf(server, {
    tokens: {
      appCheck: () => Promise.reject(new Error('no App Check')),
      idToken: () => {
        throw new Error('no user');
      },
    },
  });
  assert.equal((await client.start(PROMPT).finished).error?.code, 'tokens');
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(unheard, []);
});

test('a 401 after every other stream is not asked for ever', async (t) => {
  const server = await new TurnServer([], (n) =>
    n % 2 ? refuse(401, 'sign_in_failed') : (answer) => stream(answer) ?? answer.end(),
  ).listen(t);
  const view = await clientOf(server).client.start(PROMPT).finished;
  assert.ok(['failed', 'error'].includes(view.status));
  assert.ok(server.seen.length <= 12, `${server.seen.length}`);
});

test('a stop gets a connection, though six turns have all that a browser has over HTTP/1.1', async (t) => {
  const server = await new TurnServer([['token', 'a']]).listen(t);
  server.behave = (_, { call, turnId }) => {
    if (call === 'cancel_turn') {
      over.add(turnId);
      return cancelled;
    }
    return over.has(turnId)
      ? (answer) => stream(answer) ?? answer.end(frame(['done', { reason: 'cancelled' }, 2]))
      : stalled(1);
  };
  const over = new Set<string | undefined>();
  let busy = 0;
  const queue: (() => void)[] = [];
  const six: typeof fetch = async (url, init) => {
    if (busy >= 6) await new Promise<void>((resolve) => queue.push(resolve));
    busy++;
    const free = () => {
      busy--;
      queue.shift()?.();
    };
    if (init?.signal?.aborted) free();
    else init?.signal?.addEventListener('abort', free);
    return fetch(url, init);
  };
  const { client } = clientOf(server, { fetch: six, idleMs: 600_000, answerMs: 600_000 });
  const turns = Array.from({ length: 6 }, () => client.start(PROMPT));
  t.after(() => {
    for (const turn of turns) turn.close();
  });
  await until(() => turns.every((turn) => turn.save().state.cursor === 1));
  turns[0]?.stop().catch(() => {});
  await until(() => turns[0]?.getSnapshot().status === 'cancelled');
});

test('a turn whose first attempts are cut after the event says so no longer once it streams', async (t) => {
  const server = await new TurnServer(says('a', 'b'), [cutAfter(1), stalled(0)]).listen(t);
  const turn = clientOf(server).client.start(PROMPT);
  t.after(() => turn.close());
  await until(() => server.seen.length === 2 && turn.getSnapshot().status === 'streaming');
  await until(() => turn.getSnapshot().connection.problem === undefined);
});
