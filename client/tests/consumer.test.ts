/** The bytes of a stream, however they come, make the same turn; whatever is none is not taken for one. */

import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import {
  type Behaviour,
  clientOf,
  cutAfter,
  cutAt,
  dead,
  type Entry,
  endAt,
  inPieces,
  mute,
  PING,
  PROMPT,
  page,
  pingsOnly,
  refuse,
  says,
  stalled,
  stream,
  TurnServer,
  until,
} from './support/server.js';

const TEXT = '那🌍é\u2028\u2029\u0085\x0b\x1cx\ry\n';

async function turnOf(
  t: TestContext,
  journal: readonly Entry[],
  behave: readonly Behaviour[] | ((n: number) => Behaviour | undefined) = [],
  options: Parameters<typeof clientOf>[1] = {},
) {
  const server = await new TurnServer(journal, behave).listen(t);
  const { client, ...heard } = clientOf(server, options);
  const turn = client.start(PROMPT);
  t.after(() => turn.close());
  return { server, client, turn, ...heard };
}

test('a turn streams: its text, its end, one request', async (t) => {
  const { turn, server } = await turnOf(t, says('Hello', ', ', 'world'));
  assert.equal(turn.getSnapshot().status, 'connecting');
  const view = await turn.finished;
  assert.equal(view.text, 'Hello, world');
  assert.deepEqual([view.status, view.end, view.error], ['done', 'stop', undefined]);
  assert.equal(turn.getSnapshot(), view);
  assert.deepEqual(server.seen, [
    {
      call: 'start_turn',
      method: 'POST',
      turnId: turn.turnId,
      cursor: 0,
      appCheck: 'app-check-1',
      bearer: 'Bearer id-token',
      body: PROMPT,
    },
  ]);
});

test('cut at every byte, the turn has the same text and resumes after the last event', async (t) => {
  const journal = says(...TEXT, TEXT);
  const bytes = Buffer.byteLength(journal.map((_, at) => frameOf(journal, at)).join(''));
  await each(bytes, async (at) => {
    const { turn, server } = await turnOf(t, journal, [cutAt(at)]);
    const view = await turn.finished;
    assert.equal(view.text, TEXT + TEXT, `cut at byte ${at}`);
    const cursors = server.seen.map(({ cursor }) => cursor);
    assert.deepEqual(
      cursors,
      [...cursors].sort((a, b) => a - b),
    );
    for (const { call, cursor } of server.seen)
      assert.equal(call, cursor ? 'resume_turn' : 'start_turn');
  });
});

test('a clean end at every byte is a drop, before `done` and inside it', async (t) => {
  const journal = says('a', '那');
  const bytes = Buffer.byteLength(journal.map((_, at) => frameOf(journal, at)).join(''));
  await each(bytes, async (at) => {
    const { turn, server } = await turnOf(t, journal, [endAt(at)]);
    const view = await turn.finished;
    assert.deepEqual([view.text, view.status], ['a那', 'done']);
    assert.equal(server.seen.length, 2);
  });
});

for (const [name, behave] of Object.entries({
  'byte by byte': inPieces(1),
  'in pieces of 3 bytes': inPieces(3),
  'with CRLF, in pieces of 7': inPieces(7, (text) => text.replaceAll('\n', '\r\n')),
  'with all but ASCII escaped, as the functions send it': inPieces(1, (text) =>
    text.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  ),
  'with a byte order mark': inPieces(100, (text) => `\ufeff${text}`),
}))
  test(`a stream that comes ${name} is read in one go`, async (t) => {
    const { turn, server } = await turnOf(t, says(...TEXT, TEXT), [behave]);
    assert.equal((await turn.finished).text, TEXT + TEXT);
    assert.equal(server.seen.length, 1);
  });

test('what is no event of the turn counts for nothing', async (t) => {
  const { turn, timeline, server } = await turnOf(t, says('a', 'b'), [
    inPieces(
      1_000,
      (text) =>
        `retry: 1\n\nevent: token\ndata: "no id"\n\nid: 1\nevent: novelty\ndata: {{\n\n` +
        `unknown: field\n\ndata: x\n\nid: 1\n\n${text.replace('id: 2', 'id: 1\nevent: token\ndata: "again"\n\nid: 2')}`,
    ),
  ]);
  assert.equal((await turn.finished).text, 'ab');
  assert.equal(server.seen.length, 1);
  assert.equal(timeline.filter(({ kind }) => kind === 'ignored').length, 4);
});

for (const [name, bad] of Object.entries({
  'data that is no JSON': 'id: 2\nevent: token\ndata: "b\n\n',
  'data of another form': 'id: 2\nevent: tool_start\ndata: {"tool": 1}\n\n',
  'null for data': 'id: 2\nevent: rewind\ndata: null\n\n',
  'an id that is no number': 'id: 2x\nevent: token\ndata: "b"\n\n',
  'an id above 2^53': 'id: 9007199254740993\nevent: token\ndata: "b"\n\n',
  'a frame without end': `id: 2\nevent: token\ndata: "${'x'.repeat(2_100_000)}`,
}))
  test(`a known event with ${name} is never skipped: dropped, and resumed before it`, async (t) => {
    const damaged: Behaviour = (answer, rest) => {
      stream(answer);
      answer.write(`${rest.split('\n\n')[0]}\n\n${bad}`);
    };
    const { turn, server, timeline } = await turnOf(t, says('a', 'b'), [damaged]);
    assert.equal((await turn.finished).text, 'ab');
    assert.deepEqual(
      server.seen.map(({ cursor }) => cursor),
      [0, 1],
    );
    const dropped = timeline.find(({ kind }) => kind === 'dropped');
    assert.equal(dropped?.kind === 'dropped' && dropped.why, 'bad_content');
  });

test('an event whose handler threw is not skipped, and comes again', async (t) => {
  const server = await new TurnServer(says('a', 'b', 'c')).listen(t);
  const handled: string[] = [];
  let broken = true;
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: ({ data, id }) => {
      if (id === 2 && broken) {
        broken = false;
        throw new Error('not now');
      }
      handled.push(String(data));
    },
  });
  assert.equal((await turn.finished).text, 'abc');
  assert.deepEqual(handled.slice(0, 3), ['a', 'b', 'c']);
  assert.deepEqual(
    server.seen.map(({ cursor }) => cursor),
    [0, 1],
  );
});

test('a handler that always throws ends in giving up, with its words', async (t) => {
  const server = await new TurnServer(says('a', 'b')).listen(t);
  const turn = clientOf(server).client.start(PROMPT, {
    onEvent: ({ id }) => {
      if (id === 2) throw new Error('never');
    },
  });
  const view = await turn.finished;
  assert.deepEqual([view.status, view.text, view.error?.code], ['failed', 'a', 'handler']);
  assert.match(view.error?.message ?? '', /never/);
});

test('a listener or a timeline that throws stops nothing', async (t) => {
  const thrown: unknown[] = [];
  const later = globalThis.setTimeout;
  const caught = (call: () => void, ms?: number) =>
    later(() => {
      try {
        call();
      } catch (error) {
        thrown.push(error);
      }
    }, ms);
  globalThis.setTimeout = caught as typeof setTimeout;
  t.after(() => {
    globalThis.setTimeout = later;
  });
  const server = await new TurnServer(says('a')).listen(t);
  const { client } = clientOf(server, {
    onTimeline: ({ kind }) => {
      if (kind === 'open') throw new Error('timeline');
    },
  });
  const turn = client.start(PROMPT);
  turn.subscribe(() => {
    throw new Error('listener');
  });
  assert.equal((await turn.finished).text, 'a');
  // As uncaught errors, which a page's own reports are made of.
  await until(() => thrown.length >= 2);
});

test('silence after the headers, and after an event, is dropped after the idle time', async (t) => {
  const { turn, server, timeline } = await turnOf(t, says('a', 'b'), [stalled(), stalled(1)], {
    idleMs: 300,
  });
  assert.equal((await turn.finished).text, 'ab');
  const drops = timeline.filter(({ kind }) => kind === 'dropped');
  assert.deepEqual(
    drops.map((each) => each.kind === 'dropped' && each.why),
    ['idle', 'idle'],
  );
  assert.equal(server.seen.length, 3);
  await until(() => server.open === 0, 'the dropped sockets are released');
});

test('a trickle of pings, and of single bytes, is no silence', async (t) => {
  const trickle: Behaviour = async (answer, rest) => {
    stream(answer);
    const bytes = [...Array<string>(6).fill(':keep-alive\n\n'), ...':slow\n\n', rest];
    for (const piece of bytes) {
      await new Promise((resolve) => setTimeout(resolve, 150));
      answer.write(piece);
    }
    answer.end();
  };
  const { turn, server } = await turnOf(t, says('a'), [trickle], { idleMs: 1_000 });
  assert.equal((await turn.finished).text, 'a');
  assert.equal(server.seen.length, 1);
});

test('a time that is endless never comes', async (t) => {
  const options = { idleMs: Infinity, answerMs: Infinity, slowMs: Infinity };
  const { turn, server, timeline } = await turnOf(t, says('a'), [cutAfter(1)], options);
  assert.equal((await turn.finished).text, 'a');
  assert.equal(server.seen.length, 2);
  assert.ok(!timeline.some(({ kind }) => kind === 'notice'));
});

test('no answer is said, then dropped', async (t) => {
  const { turn, timeline } = await turnOf(t, says('a'), [mute], { answerMs: 400 });
  await until(() => turn.getSnapshot().connection.notice === 'no_answer');
  const view = await turn.finished;
  assert.deepEqual([view.text, view.connection.notice], ['a', undefined]);
  assert.ok(timeline.some((each) => each.kind === 'dropped' && each.why === 'no_answer'));
});

test('a proxy that holds the body back is said', async (t) => {
  const held: Behaviour = (answer, rest) => {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream' });
    answer.flushHeaders();
    setTimeout(() => answer.end(`:keep-alive\n\n${rest}`), 250);
  };
  const { turn } = await turnOf(t, says('a'), [held]);
  const view = await turn.finished;
  assert.deepEqual([view.text, view.connection.notice], ['a', 'buffered']);
});

for (const [name, rest] of Object.entries({
  'a whole turn in one burst': (text: string) => text,
  'pings of seconds in one burst': () => ':keep-alive\n\n:keep-alive\n\n',
}))
  test(`a proxy that holds the response back is said: ${name}`, async (t) => {
    const held: Behaviour = (answer, text) =>
      void setTimeout(() => {
        answer.writeHead(200, { 'Content-Type': 'text/event-stream' });
        answer.end(PING + rest(text));
      }, 250);
    const { turn, timeline } = await turnOf(t, says('a'), [held]);
    assert.equal((await turn.finished).text, 'a');
    assert.ok(timeline.some((each) => each.kind === 'notice' && each.notice === 'buffered'));
  });

test('a slow start that then streams is not called buffered', async (t) => {
  const cold: Behaviour = (answer, rest) =>
    void setTimeout(() => {
      stream(answer);
      setTimeout(() => answer.end(rest), 700);
    }, 250);
  const { turn, timeline } = await turnOf(t, says('a'), [cold]);
  assert.equal((await turn.finished).text, 'a');
  assert.ok(!timeline.some((each) => each.kind === 'notice' && each.notice === 'buffered'));
});

test('nor is a start that is posted again: its turn may have ended meanwhile', async (t) => {
  const late: Behaviour = (answer, rest) =>
    void setTimeout(() => {
      stream(answer);
      answer.end(rest);
    }, 250);
  const { turn, timeline } = await turnOf(t, says('a'), [dead, late]);
  assert.equal((await turn.finished).text, 'a');
  assert.ok(!timeline.some((each) => each.kind === 'notice' && each.notice === 'buffered'));
});

test('nor is one whose agent ends at once', async (t) => {
  const cold: Behaviour = (answer, rest) =>
    void setTimeout(async () => {
      stream(answer);
      await until(() => timeline.some(({ kind }) => kind === 'ping'));
      setTimeout(() => answer.end(rest), 50);
    }, 250);
  const { turn, timeline } = await turnOf(t, says('a'), [cold]);
  assert.equal((await turn.finished).text, 'a');
  assert.ok(!timeline.some((each) => each.kind === 'notice' && each.notice === 'buffered'));
});

test('a slow stream needs no pauses for the page: only long work is cut', async (t) => {
  const { MessageChannel: Channel } = globalThis;
  let pauses = 0;
  globalThis.MessageChannel = class extends Channel {
    constructor() {
      super();
      pauses++;
    }
  };
  t.after(() => {
    globalThis.MessageChannel = Channel;
  });
  const tokens = Array.from({ length: 40 }, (_, at) => `${at} `);
  const slow: Behaviour = async (answer, rest) => {
    stream(answer);
    for (const piece of rest.split(/(?<=\n\n)/)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      answer.write(piece);
    }
    answer.end();
  };
  const { turn } = await turnOf(t, says(...tokens), [slow]);
  assert.equal((await turn.finished).text, tokens.join(''));
  assert.ok(pauses < 20, `${pauses} pauses`);
});

test('a response of another type is no stream: tried again, then given up', async (t) => {
  const { turn, server } = await turnOf(t, says('a'), () => page(200));
  const view = await turn.finished;
  assert.deepEqual([view.status, view.error?.code], ['failed', 'bad_content']);
  assert.equal(server.seen.length, 5);
});

test('an error with status 200 is an error', async (t) => {
  const { turn, server } = await turnOf(t, says('a'), () => refuse(200, 'bad_body'));
  const view = await turn.finished;
  assert.deepEqual([view.status, view.error?.code], ['error', 'bad_body']);
  assert.equal(server.seen.length, 1);
});

test('ten cuts, each after 20 new events, are outlived; the budget is for what brings nothing', async (t) => {
  const words = Array.from({ length: 230 }, (_, at) => `w${at} `);
  const { turn, server } = await turnOf(t, says(...words), Array(10).fill(cutAfter(20)));
  const view = await turn.finished;
  assert.equal(view.text, words.join(''));
  assert.equal(server.seen.length, 11);
});

for (const [name, behave] of Object.entries({ 'that pings and closes': pingsOnly, dead }))
  test(`a server ${name}, for ever, is given up; reconnect() tries again`, async (t) => {
    let well = false;
    const { turn, server } = await turnOf(t, says('a'), () => (well ? undefined : behave));
    const view = await turn.finished;
    assert.equal(view.status, 'failed');
    assert.equal(server.seen.length, 5);
    assert.equal(view.connection.retryAt, undefined);
    well = true;
    turn.reconnect();
    await until(() => turn.getSnapshot().status === 'done');
    assert.equal(turn.getSnapshot().text, 'a');
  });

test('a "Load failed" TypeError and an AbortError that is not ours are drops', async (t) => {
  const errors = [new TypeError('Load failed'), new DOMException('aborted', 'AbortError')];
  const { turn, server } = await turnOf(t, says('a'), [], {
    fetch: async (...request) => {
      const error = errors.shift();
      if (error) throw error;
      return fetch(...request);
    },
  });
  assert.equal((await turn.finished).text, 'a');
  assert.equal(server.seen.length, 1);
});

test('tokens that cannot be had are tried for again, and hang no turn', async (t) => {
  const server = await new TurnServer(says('a')).listen(t);
  let calls = 0;
  const { client } = clientOf(server, {
    answerMs: 300,
    tokens: {
      appCheck: () => {
        calls++;
        if (calls === 1) return Promise.reject(new Error('offline'));
        if (calls === 2) return new Promise(() => {});
        return Promise.resolve('good');
      },
      idToken: async () => null,
    },
  });
  assert.equal((await client.start(PROMPT).finished).text, 'a');
  assert.deepEqual([calls, server.seen.length, server.seen[0]?.bearer], [3, 1, undefined]);
});

test('4 MB of events come whole in pieces of 1 KB', async (t) => {
  const big = 'x'.repeat(60_000);
  const { turn } = await turnOf(t, says(...Array<string>(70).fill(big)), [inPieces(1_024)]);
  assert.equal((await turn.finished).text, big.repeat(70));
});

/** Do it for every number below `count`, a few at a time. */
async function each(count: number, act: (at: number) => Promise<void>): Promise<void> {
  for (let from = 0; from < count; from += 20)
    await Promise.all(
      Array.from({ length: Math.min(20, count - from) }, (_, at) => act(from + at)),
    );
}

function frameOf(journal: readonly Entry[], at: number): string {
  const [type, data] = journal[at] ?? ['', ''];
  return `id: ${at + 1}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}
