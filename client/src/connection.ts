/** One attempt: a request, its response, its frames. It always ends with a value, never by throwing. */

import { createParser } from 'eventsource-parser';
import { after } from './after.js';
import { problem, readJson, setbackOf } from './answer.js';
import type { Setback } from './backoff.js';
import { pieces } from './body.js';
import { type Call, prepare } from './calls.js';
import { decode } from './decode.js';
import type { TurnEvent } from './events.js';
import type { ClientOptions } from './options.js';
import { defer } from './promise.js';
import type { Tell } from './timeline.js';
import type { DropReason } from './view.js';

/**
 * How an attempt ended: dropped, or `refused` with an error, or `over`: a stream that has no more
 * events (204), another call that was answered.
 */
export interface Outcome extends Setback {
  readonly why: DropReason | 'refused' | 'over';
}

/** An attempt under way. */
export interface Connection {
  /** Never rejects. */
  readonly outcome: Promise<Outcome>;
  /** End now, for that reason; without effect after the end. */
  drop(why: DropReason): void;
  /** Whether it is silent for too long, by the wall clock: that goes on while a page is frozen. */
  isStale(): boolean;
}

/** Where a stream tells what comes. Nothing is told after its end. */
export interface Sink {
  opened(waitedMs: number): void;
  /** Returns whether the turn goes on, null for an event that is not new. A throw drops the connection. */
  event(event: TurnEvent): boolean | null;
  ping(): void;
  notice(notice: 'no_answer' | 'buffered'): void;
}

/** Longer than any frame of the protocol; what holds more is no stream of ours. */
const MAX_FRAME_CHARACTERS = 2_000_000;
const SLICE_BYTES = 16_384;
/** The default of `answerMs`. */
export const ANSWER_MS = 30_000;
/** Work goes on for so long at most before the page may paint and answer clicks. */
const WORK_MS = 8;
/**
 * What comes within this of the first byte came in one burst. The server's second ping does not, nor
 * does a fresh turn's end, which is stored before it is sent: something held them back.
 */
const BURST_MS = 20;

/**
 * Make a call, with tokens of its own.
 *
 * @param refresh - with an ID token that is new, too
 * @param sink - one that takes no events is for a call that is answered with JSON
 * @param attempt - the number of this attempt to stream; 0 for what streams nothing
 */
export function connect(
  call: Call,
  client: ClientOptions,
  tell: Tell,
  refresh: boolean,
  sink: Sink | Pick<Sink, 'notice'>,
  attempt = 0,
): Connection {
  const { idleMs = 10_000, answerMs = ANSWER_MS, slowMs = 3_000 } = client;
  const abort = new AbortController();
  const ended = defer<Outcome>();
  /** What it means if what is done now throws. */
  let failing: DropReason = 'tokens';
  let over = false;
  let staleAt: number;
  let timer: ReturnType<typeof setTimeout>;
  let slow: ReturnType<typeof setTimeout>;

  run()
    .catch((error) => drop(failing, String(error)))
    // Not everything that is thrown can be said.
    .catch(() => drop(failing));
  return { outcome: ended.promise, drop, isStale: () => Date.now() > staleAt };

  async function run(): Promise<void> {
    // Who hears of the request may end it: the caller is to have this connection before.
    await null;
    if (over) return;
    expect(answerMs, failing);
    tell({ kind: 'request', call: call.name, attempt, cursor: call.cursor });
    const { url, init } = await prepare(client, call, refresh);
    if (over) return;
    failing = 'network';
    const sent = performance.now();
    expect(answerMs, 'no_answer', 'no_answer');
    const response = await (client.fetch ?? fetch)(url, { ...init, signal: abort.signal });
    if (over) return void response.body?.cancel().catch(() => {});
    expect(idleMs, 'idle', 'buffered');
    const { headers, ok, status } = response;
    const body = pieces(response, ended.promise);
    const isStream = /^text\/event-stream\s*(;|$)/i.test(headers.get('content-type') ?? '');
    if ('event' in sink && ok && isStream && response.body) {
      sink.opened(performance.now() - sent);
      await read(sink, body, sent);
      drop('ended');
    } else {
      const said = await readJson(body);
      const setback = setbackOf(response, said);
      const isAnswered = !('event' in sink) && ok && typeof said?.['status'] === 'string';
      // No start is answered with 204: that is no word of the server's.
      const isOver = isAnswered || (status === 204 && call.name !== 'start_turn');
      const why = setback.problem.status === null ? 'bad_content' : 'refused';
      end({ why: isOver ? 'over' : why, ...setback });
    }
  }

  async function read(sink: Sink, body: AsyncIterable<Uint8Array>, sent: number): Promise<void> {
    let first = 0;
    let now = 0;
    let pings = 0;
    let worked = 0;
    const held = () => {
      if (first - sent > slowMs && now - first < BURST_MS) sink.notice('buffered');
    };
    const parser = createParser({
      maxBufferSize: MAX_FRAME_CHARACTERS,
      onEvent: ({ id = '', event: type = 'message', data }) => {
        if (over) return;
        failing = 'bad_content';
        const event = decode(id, type, data);
        failing = 'handler';
        const goesOn = event && sink.event(event);
        failing = 'network';
        if (goesOn === null) tell({ kind: 'ignored', id, type });
        if (goesOn !== false) return;
        if (attempt === 1 && call.name === 'start_turn') held();
        drop('ended');
      },
      onComment: () => {
        if (over) return;
        sink.ping();
        if (++pings === 2) held();
      },
      onError: ({ type }) => {
        if (type === 'max-buffer-size-exceeded') drop('bad_content', type);
      },
    });
    // What is no UTF-8 was damaged on the way.
    const decoder = new TextDecoder('utf-8', { fatal: true });
    for await (const piece of body) {
      if (over) return;
      expect(idleMs, 'idle');
      now = performance.now();
      first ||= now;
      for (let from = 0; from < piece.length && !over; from += SLICE_BYTES) {
        const began = performance.now();
        parser.feed(decoder.decode(piece.subarray(from, from + SLICE_BYTES), { stream: true }));
        worked += performance.now() - began;
        if (worked > WORK_MS) {
          await breath();
          worked = 0;
        }
      }
    }
  }

  /** From now on, so long without a call of this drops the connection; `notice` is given before. */
  function expect(ms: number, why: DropReason, notice?: 'no_answer' | 'buffered'): void {
    forget();
    staleAt = Date.now() + ms;
    timer = after(ms, () => drop(why));
    if (notice) slow = after(slowMs, () => sink.notice(notice));
  }

  function forget(): void {
    clearTimeout(timer);
    clearTimeout(slow);
  }

  function drop(why: DropReason, message: string = why): void {
    end({ why, problem: problem(why, message), retryAfterMs: null });
  }

  function end(outcome: Outcome): void {
    if (over) return;
    over = true;
    forget();
    ended.resolve(outcome);
    abort.abort();
  }
}

/** Let the page paint and answer. Not by a timer: those are slow in hidden tabs. */
function breath(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
