/** What a page gives to a client: where the functions are, tokens, and what it wants to hear. */

import type { BackoffOptions } from './backoff.js';
import type { TurnEvent } from './events.js';
import type { DropReason, Notice, TurnProblem, TurnStatus } from './view.js';

/** The deployed functions that this package calls. */
export type FunctionName = 'start_turn' | 'resume_turn' | 'run_tool_step' | 'cancel_turn';

/** The URL of each function. */
export type FunctionUrls = Readonly<Record<FunctionName, string>>;

/** Where tokens come from. `firebaseTokens` makes one of the Firebase SDK. */
export interface Tokens {
  /** Return a fresh limited-use App Check token. Called for every attempt: a token is good for one. */
  appCheck(): Promise<string>;
  /**
   * Return the ID token of the signed-in user, null if nobody is signed in.
   *
   * @param refresh - the last one was refused: do not give it again
   */
  idToken(refresh: boolean): Promise<string | null>;
}

/** Options of a `TurnClient`. All times are milliseconds. */
export interface ClientOptions {
  /**
   * The functions' own URLs, or the URL that their names are appended to:
   * `https://us-central1-my-project.cloudfunctions.net`. Not Hosting's: a rewrite holds a streamed
   * response back to its end.
   */
  readonly functions: FunctionUrls | string;
  readonly tokens: Tokens;
  /** Called in place of the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** A connection without any byte for so long is dropped. Default 10,000; pings come every 4,000. */
  readonly idleMs?: number | undefined;
  /** An attempt without a response for so long is dropped. Default 30,000: cold starts are slow. */
  readonly answerMs?: number | undefined;
  /** After so long without a response, or without its first byte, a `notice` says so. Default 3,000. */
  readonly slowMs?: number | undefined;
  readonly backoff?: Partial<BackoffOptions> | undefined;
  /** Hears of everything that happens to every turn, at once and in order. For a page's log. */
  readonly onTimeline?: ((entry: TimelineEntry) => void) | undefined;
}

/** Options of one turn. */
export interface TurnOptions {
  /**
   * Called for every new event, in order, before it is folded and shown. If it throws, the event
   * does not count as handled: the connection is dropped, and the event comes again. What it returns
   * is not awaited.
   */
  readonly onEvent?: ((event: TurnEvent) => void) | undefined;
}

/** Something that happened to a turn; `at` is `Date.now()`. */
export type TimelineEntry = { readonly at: number; readonly turnId: string } & (
  | {
      /** A request leaves. */
      readonly kind: 'request';
      readonly call: FunctionName;
      /** Counts the calls for this turn, from 1. */
      readonly attempt: number;
      readonly cursor: number;
    }
  /** The event stream is open. */
  | { readonly kind: 'open' }
  | { readonly kind: 'event'; readonly event: TurnEvent }
  | { readonly kind: 'ping' }
  /** A frame that counts for nothing: its id is not above the cursor, or its type is unknown. */
  | { readonly kind: 'ignored'; readonly id: string; readonly type: string }
  /** The connection ended before the turn did, or the server answered with an error (`refused`). */
  | {
      readonly kind: 'dropped';
      readonly why: DropReason | 'refused';
      readonly problem: TurnProblem;
    }
  /** The next attempt is due in so long. */
  | { readonly kind: 'retry'; readonly delayMs: number; readonly failures: number }
  | { readonly kind: 'notice'; readonly notice: Notice }
  /** Nothing more will happen by itself: over, waiting, given up or closed. */
  | { readonly kind: 'settled'; readonly status: TurnStatus }
);
