/** One attempt: a request, its response, its frames. It always ends with a value, never by throwing. */

import { createParser } from 'eventsource-parser';
import { after } from './after.js';
import { setbackOf } from './answer.js';
import type { Setback } from './backoff.js';
import { type Call, prepare } from './calls.js';
import { decode, isText } from './decode.js';
import type { TurnEvent } from './events.js';
import { type Fields, parse } from './json.js';
import { isHidden } from './lifecycle.js';
import type { ClientOptions } from './options.js';
import { defer } from './promise.js';
import type { Tell } from './timeline.js';
import type { DropReason } from './view.js';

/** How an attempt failed: dropped, or `refused` with an error. */
export interface Loss extends Setback {
  readonly why: DropReason | 'refused';
}

/** How an attempt ended; `over` is a stream that has no more events (204), a stop that was answered. */
export type Outcome = Loss | { readonly why: 'over' };

/** An attempt under way. */
export interface Connection {
  /** Never rejects. */
  readonly outcome: Promise<Outcome>;
  /** End now, for that reason; without effect after the end. */
  drop(why: DropReason): void;
  /** Whether it is silent for too long, by the wall clock: that goes on while a page is frozen. */
  isStale(): boolean;
}

/** Where an attempt tells what comes. Nothing is told after its end. */
export interface Sink {
  /** The call was admitted: its stream is open. */
  opened(): void;
  /** Returns whether the turn goes on, null for an event that is not new. A throw drops the connection. */
  event(event: TurnEvent): boolean | null;
  notice(notice: 'no_answer' | 'buffered'): void;
  readonly tell: Tell;
}

const SLICE_BYTES = 16_384;
/** The default of `answerMs`. */
export const ANSWER_MS = 30_000;

/**
 * Make a call, with tokens of its own.
 *
 * @param refresh - with an ID token that is new, too
 */
export function connect(
  call: Call,
  client: ClientOptions,
  refresh: boolean,
  sink: Sink,
): Connection {
  const { idleMs = 10_000, answerMs = ANSWER_MS, slowMs = 3_000 } = client;
  const { name, attempt, cursor } = call;
  const abort = new AbortController();
  const ended = defer<Outcome>();
  /** What it means if what is done now throws. */
  let failing: DropReason = 'tokens';
  let over = false;
  let staleAt: number;
  let timer: ReturnType<typeof after>;
  let slow: ReturnType<typeof after>;
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

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
    sink.tell({ kind: 'request', call: name, attempt, cursor });
    const [url, init] = await prepare(client, call, refresh);
    if (over) return;
    failing = 'network';
    const sent = Date.now();
    expect(answerMs, 'no_answer', 'no_answer');
    const response = await (client.fetch ?? fetch)(url, { ...init, signal: abort.signal });
    reader = response.body?.getReader();
    if (over) return release();
    expect(idleMs, 'idle', 'buffered');
    const isStop = name === 'cancel_turn';
    const isStream = /^text\/event-stream\s*(;|$)/i.test(`${response.headers.get('content-type')}`);
    if (response.ok && !isStop && isStream && reader) {
      sink.opened();
      await read(frames(sent), true);
      return drop('ended');
    }
    let text = '';
    await read((piece) => {
      text += piece;
      // Longer than any error of the protocol.
      return text.length > 65_536;
    });
    const said = parse(text) as Fields;
    const setback = setbackOf(response, said);
    // No start is answered with 204: that is no word of the server's.
    const isOver = isStop
      ? response.ok && isText(said?.['status'])
      : response.status === 204 && name !== 'start_turn';
    const why = setback.problem.status ? 'refused' : 'bad_content';
    end(isOver ? { why: 'over' } : { why, ...setback });
  }

  /** Give the body's text to `feed`, to its end or until `feed` has enough. */
  async function read(feed: (text: string) => unknown, fatal = false): Promise<void> {
    // What is no UTF-8 was damaged on the way.
    const decoder = new TextDecoder('utf-8', { fatal });
    let worked = 0;
    while (reader) {
      failing = 'network';
      const { done, value } = await reader.read();
      if (over || done) return;
      expect(idleMs, 'idle');
      failing = 'bad_content';
      for (let from = 0; from < value.length; from += SLICE_BYTES) {
        const began = Date.now();
        const slice = value.subarray(from, from + SLICE_BYTES);
        if (feed(decoder.decode(slice, { stream: true })) || over) return;
        worked += Date.now() - began;
        // Let the page paint and answer clicks. A hidden tab has neither, and slow timers.
        if (worked > 8 && !isHidden()) {
          await new Promise((resolve) => setTimeout(resolve));
          worked = 0;
        }
      }
    }
  }

  /** Return what reads the frames of a stream that was asked for at `sent`. */
  function frames(sent: number): (text: string) => void {
    let first = 0;
    let pings = 0;
    let characters = 0;
    // Something held the stream back if the server's second ping, or a fresh turn's end, which is
    // stored before it is sent, is in one burst with the first byte.
    const held = () => {
      if (first - sent > slowMs && Date.now() - first < 20) sink.notice('buffered');
    };
    const parser = createParser({
      onEvent: ({ id = '', event: type = 'message', data }) => {
        characters = 0;
        if (over) return;
        const event = decode(id, type, data);
        failing = 'handler';
        const goesOn = event && sink.event(event);
        failing = 'bad_content';
        if (goesOn === null) sink.tell({ kind: 'ignored', id, type });
        if (goesOn !== false) return;
        if (name === 'start_turn' && attempt < 2) held();
        drop('ended');
      },
      onComment: () => {
        characters = 0;
        if (over) return;
        sink.tell({ kind: 'ping' });
        if (++pings === 2) held();
      },
    });
    return (text) => {
      first ||= Date.now();
      characters += text.length;
      parser.feed(text);
      // Longer than any frame of the protocol.
      if (characters > 2_000_000) throw new Error('endless frame');
    };
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
    end({ why, problem: { code: why, message } });
  }

  function end(outcome: Outcome): void {
    over = true;
    forget();
    ended.resolve(outcome);
    release();
  }

  /** The signal releases the socket; the reader, what a `fetch` of the page's own holds. */
  function release(): void {
    abort.abort();
    reader?.cancel().catch(() => {});
  }
}
