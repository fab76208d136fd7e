/** A server of one turn, on a real socket, with named misbehaviours. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import type { ClientOptions, FunctionName, TimelineEntry } from '../../src/index.js';
import { TurnClient } from '../../src/index.js';

/** A request as it came. */
export interface Seen {
  readonly call: FunctionName;
  readonly method: string;
  readonly turnId: string | undefined;
  readonly cursor: number;
  readonly appCheck: string | undefined;
  readonly bearer: string | undefined;
  readonly body: unknown;
}

/** What answers a request. `rest` are the frames after the request's cursor. */
export type Behaviour = (answer: ServerResponse, rest: string, seen: Seen) => void;

/** An event, as `[type, data]`; its id is its place, from 1, unless it is named. */
export type Entry = readonly [type: string, data: unknown, id?: number];

export const PING = ':keep-alive\n\n';

export function frame([type, data, id]: Entry, at = 0): string {
  return `id: ${id ?? at + 1}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The events of a turn that says these tokens. */
export function says(...tokens: string[]): Entry[] {
  return [...tokens.map((token): Entry => ['token', token]), ['done', { reason: 'stop' }]];
}

export class TurnServer {
  readonly seen: Seen[] = [];
  url = '';
  #sockets = new Set<ServerResponse>();

  /** @param behave - for the nth request, from 0: what answers it. Past them, `whole` does. */
  constructor(
    public journal: readonly Entry[],
    public behave: readonly Behaviour[] | ((n: number, seen: Seen) => Behaviour | undefined) = [],
  ) {}

  async listen(test: TestContext): Promise<this> {
    const server = createServer((request, answer) => void this.#answer(request, answer));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    test.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return this;
  }

  /** How many responses are open. */
  get open(): number {
    return this.#sockets.size;
  }

  calls(name: FunctionName): Seen[] {
    return this.seen.filter(({ call }) => call === name);
  }

  rest(cursor: number): string {
    return this.journal
      .map((entry, at): [number, string] => [entry[2] ?? at + 1, frame(entry, at)])
      .filter(([id]) => id > cursor)
      .map(([, text]) => text)
      .join('');
  }

  async #answer(request: IncomingMessage, answer: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += chunk;
    const { headers } = request;
    const seen: Seen = {
      call: (request.url ?? '').slice(1) as FunctionName,
      method: request.method ?? '',
      turnId: headers['x-stream-turn-id'] as string | undefined,
      cursor: Number(headers['last-event-id'] ?? 0),
      appCheck: headers['x-firebase-appcheck'] as string | undefined,
      bearer: headers.authorization,
      body: text === '' ? undefined : JSON.parse(text),
    };
    const n = this.seen.push(seen) - 1;
    this.#sockets.add(answer);
    answer.on('close', () => this.#sockets.delete(answer));
    const given = typeof this.behave === 'function' ? this.behave(n, seen) : this.behave[n];
    (given ?? whole)(answer, this.rest(seen.cursor), seen);
  }
}

// What a server, or what stands before it, does

export function stream(answer: ServerResponse): void {
  answer.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });
  answer.write(PING);
}

/** All of it, and a clean end. */
export const whole: Behaviour = (answer, rest) => {
  stream(answer);
  answer.end(rest);
};

/** So many bytes of it, then the connection is gone. */
export const cutAt =
  (bytes: number): Behaviour =>
  (answer, rest) => {
    stream(answer);
    answer.write(Buffer.from(rest).subarray(0, bytes), () => answer.destroy());
  };

/** So many bytes of it, then a clean end. */
export const endAt =
  (bytes: number): Behaviour =>
  (answer, rest) => {
    stream(answer);
    answer.end(Buffer.from(rest).subarray(0, bytes));
  };

/** So many events of it, then the connection is gone. */
export const cutAfter =
  (events: number): Behaviour =>
  (answer, rest, seen) =>
    cutAt(Buffer.byteLength(rest.split('\n\n').slice(0, events).join('\n\n')) + 2)(
      answer,
      rest,
      seen,
    );

/** These bytes as they are, in pieces of that size, one write each. */
export const inPieces =
  (size: number, change: (text: string) => string = (text) => text): Behaviour =>
  async (answer, rest) => {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const bytes = Buffer.from(change(PING + rest));
    for (let from = 0; from < bytes.length && !answer.destroyed; from += size)
      await new Promise((sent) => answer.write(bytes.subarray(from, from + size), sent));
    answer.end();
  };

/** Headers and so many events; then silence, for ever. */
export const stalled =
  (events = 0): Behaviour =>
  (answer, rest) => {
    stream(answer);
    const some = rest.split('\n\n').slice(0, events).join('\n\n');
    if (events) answer.write(`${some}\n\n`);
  };

/** No answer, for ever. */
export const mute: Behaviour = () => {};

/** The connection is closed before an answer. */
export const dead: Behaviour = (answer) => void answer.destroy();

/** Pings, and a clean end. */
export const pingsOnly: Behaviour = (answer) => {
  stream(answer);
  answer.end(PING + PING);
};

/** An error of the protocol. */
export const refuse =
  (status: number, code: string, headers: Record<string, string> = {}, more = {}): Behaviour =>
  (answer) => {
    answer.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    const error = { code, message: `says ${code}`, correlationId: 'abc', ...more };
    answer.end(JSON.stringify({ error }));
  };

/** Something of this type. */
export const page =
  (status: number, type = 'text/html', text = '<h1>hello</h1>'): Behaviour =>
  (answer) => {
    answer.writeHead(status, { 'Content-Type': type });
    answer.end(text);
  };

/** The answer to a `cancel_turn`. */
export const cancelled = page(200, 'application/json', '{"status": "cancelled"}');

// Clients of it

/** What the turns of tests are started with. */
export const PROMPT = { prompt: 'hello' };

/** Waits for what has to happen are short; those for what must not happen are long. */
export const QUICK = {
  idleMs: 20_000,
  answerMs: 20_000,
  slowMs: 100,
  backoff: { baseMs: 1, capMs: 5, maxFailures: 5 },
};

/** Return a client of `server`, the tokens it gave and what it told. */
export function clientOf(server: TurnServer, options: Partial<ClientOptions> = {}) {
  const timeline: TimelineEntry[] = [];
  const refreshes: boolean[] = [];
  let tokens = 0;
  const client = new TurnClient({
    functions: server.url,
    tokens: {
      appCheck: async () => `app-check-${++tokens}`,
      idToken: async (refresh) => {
        refreshes.push(refresh);
        return 'id-token';
      },
    },
    onTimeline: (entry) => timeline.push(entry),
    ...QUICK,
    ...options,
  });
  return { client, timeline, refreshes };
}

/** Wait until it holds. */
export async function until(holds: () => boolean, what = 'it'): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`${what} did not come to hold`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
