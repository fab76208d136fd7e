/** One attempt: a request, its response, its frames. It always ends with a value, never by throwing. */

import { createParser, type EventSourceMessage } from 'eventsource-parser';
import { problem, readJson, setbackOf } from './answer.js';
import type { Setback } from './backoff.js';
import { Unreadable } from './decode.js';
import type { ClientOptions } from './options.js';
import { defer } from './promise.js';
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
  /** Returns whether the turn goes on. What it throws drops the connection. */
  frame(message: EventSourceMessage): boolean;
  ping(): void;
  notice(notice: 'no_answer' | 'buffered'): void;
}

/** A request, with its tokens. */
export interface Prepared {
  readonly url: string;
  readonly init: RequestInit;
}

/** What a page's own `onEvent` threw. */
export class HandlerError extends Error {}

/** Longer than any frame of the protocol; what holds more is no stream of ours. */
const MAX_FRAME_CHARACTERS = 2_000_000;
const SLICE_BYTES = 16_384;
/** The default of `answerMs`. */
export const ANSWER_MS = 30_000;
/** Work goes on for so long at most before the page may paint and answer clicks. */
const WORK_MS = 8;
/** The server's pings are seconds apart: two within this came in one burst. */
const PINGS_MS = 100;
/** A fresh turn's end is stored before it is sent: within this of the first byte, it was held back. */
const END_MS = 20;

/**
 * Make a request.
 *
 * @param prepare - makes the request; while it runs, tokens are awaited
 * @param sink - null for a call that is answered with JSON
 * @param fresh - the turn cannot have events yet: an end in the first burst was held back
 */
export function connect(
  prepare: () => Promise<Prepared>,
  client: ClientOptions,
  sink: Sink | null,
  fresh: boolean,
): Connection {
  const { idleMs = 10_000, answerMs = ANSWER_MS, slowMs = 3_000 } = client;
  const send: typeof fetch = client.fetch ?? ((...request) => fetch(...request));
  const abort = new AbortController();
  const ended = defer<Outcome>();
  let over = false;
  let deadline: number;
  let staleAt: number;
  let timer: ReturnType<typeof setTimeout>;
  let slow: ReturnType<typeof setTimeout>;

  void run();
  return { outcome: ended.promise, drop, isStale: () => Date.now() > staleAt };

  async function run(): Promise<void> {
    let why: DropReason = 'tokens';
    try {
      expect(answerMs, why);
      const { url, init } = await prepare();
      if (over) return;
      why = 'network';
      const sent = performance.now();
      expect(answerMs, 'no_answer');
      warn('no_answer');
      const response = await send(url, { ...init, signal: abort.signal });
      if (over) return void response.body?.cancel().catch(() => {});
      expect(idleMs, 'idle');
      clearTimeout(slow);
      const { body, headers, ok, status } = response;
      const isStream = /^text\/event-stream\s*(;|$)/i.test(headers.get('content-type') ?? '');
      if (sink && ok && body && isStream) {
        sink.opened(performance.now() - sent);
        warn('buffered');
        await read(sink, body, sent);
        drop('ended');
      } else {
        const said = await readJson(response);
        const setback = setbackOf(response, said);
        const isOver = status === 204 || (!sink && ok && typeof said?.['status'] === 'string');
        const isRefused = setback.problem.status !== null;
        end({ why: isOver ? 'over' : isRefused ? 'refused' : 'bad_content', ...setback });
      }
    } catch (error) {
      if (error instanceof Unreadable) why = 'bad_content';
      if (error instanceof HandlerError) why = 'handler';
      drop(why, `${error}`);
    }
  }

  async function read(sink: Sink, body: ReadableStream<Uint8Array>, sent: number): Promise<void> {
    let first = 0;
    let now = 0;
    let pings = 0;
    let worked = 0;
    const notice = (burstMs: number) => {
      if (first - sent > slowMs && now - first < burstMs) sink.notice('buffered');
    };
    const parser = createParser({
      maxBufferSize: MAX_FRAME_CHARACTERS,
      onEvent: (message) => {
        if (over || sink.frame(message)) return;
        if (fresh) notice(END_MS);
        drop('ended');
      },
      onComment: () => {
        if (over) return;
        sink.ping();
        if (++pings === 2) notice(PINGS_MS);
      },
      onError: ({ type }) => {
        if (type === 'max-buffer-size-exceeded') throw new Unreadable(type);
      },
    });
    const decoder = new TextDecoder();
    const reader = body.getReader();
    // The signal releases the socket; this, what a `fetch` of the page's own holds.
    ended.promise.then(() => reader.cancel()).catch(() => {});
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(slow);
      now = performance.now();
      first ||= now;
      extend(idleMs);
      for (let from = 0; from < value.length && !over; from += SLICE_BYTES) {
        const began = performance.now();
        parser.feed(decoder.decode(value.subarray(from, from + SLICE_BYTES), { stream: true }));
        worked += performance.now() - began;
        if (worked > WORK_MS) {
          await breath();
          worked = 0;
        }
      }
      if (over) return;
    }
  }

  /** Drop the connection in so long, unless the deadline is moved before. */
  function expect(ms: number, why: DropReason): void {
    extend(ms);
    clearTimeout(timer);
    timer = setTimeout(check, ms);

    function check() {
      const left = deadline - performance.now();
      if (left > 0) timer = setTimeout(check, left + 1);
      else drop(why);
    }
  }

  function extend(ms: number): void {
    deadline = performance.now() + ms;
    staleAt = Date.now() + ms;
  }

  function warn(notice: 'no_answer' | 'buffered'): void {
    slow = setTimeout(() => over || sink?.notice(notice), slowMs);
  }

  function drop(why: DropReason, message: string = why): void {
    end({ why, problem: problem(why, message), retryAfterMs: null });
  }

  function end(outcome: Outcome): void {
    if (over) return;
    over = true;
    clearTimeout(timer);
    clearTimeout(slow);
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
