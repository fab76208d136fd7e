/**
 * What a page shows of a turn, and what it keeps of one over a reload. Values: nothing here changes.
 */

import type { DoneReason, ToolStatus, Usage } from './events.js';

/**
 * Where a turn stands, as this client sees it:
 *
 * | status | meaning |
 * | --- | --- |
 * | `connecting` | the first event has not come yet |
 * | `streaming` | connected; events come |
 * | `waiting` | a person has to decide the `pending` steps; nothing is connected, nothing is due |
 * | `reconnecting` | the connection was lost; `connection` says when it is tried again |
 * | `done` | over: the answer is complete (`end` says whether it was cut at its length) |
 * | `cancelled` | over: the user stopped it |
 * | `error` | over: it failed, or the server refused the call for good; `error` says why |
 * | `failed` | given up: many attempts in a row brought nothing new. The turn may well go on at the server; `reconnect()` tries again |
 * | `closed` | the handle was closed. The turn goes on at the server |
 */
export type TurnStatus =
  | 'connecting'
  | 'streaming'
  | 'waiting'
  | 'reconnecting'
  | 'done'
  | 'cancelled'
  | 'error'
  | 'failed'
  | 'closed';

/**
 * How a step stands: `running`, `pending` (a person has to decide), `decided` (this page's decision is
 * recorded, and what it leads to is on its way), an outcome, or `stopped` (the turn was over before
 * the step had an outcome).
 */
export type StepStatus = 'running' | 'pending' | 'decided' | 'stopped' | ToolStatus;

/** A tool step. */
export interface Step {
  /** Its number; what `approve` and `deny` take. */
  readonly step: number;
  /** The tool's name. */
  readonly tool: string;
  /** What the tool was called with; a page shows it to who decides. */
  readonly args: Readonly<Record<string, unknown>>;
  /** How it stands. */
  readonly status: StepStatus;
  /** What the tool returned. */
  readonly result?: unknown;
  /** Until when a decision counts (RFC 3339, UTC); absent if none was asked for. */
  readonly expiresAt?: string | undefined;
  /** Where in the text the step belongs: after that many UTF-16 code units. */
  readonly at: number;
}

/** What went wrong: an error of the turn, of a call, or of the connection. */
export interface TurnProblem {
  /**
   * A code of docs/PROTOCOL.md; or, for an answer that is not the protocol's, `http_error`; or, when
   * nothing usable was answered, why the connection ended: a {@link DropReason}.
   */
  readonly code: string;
  /** In plain English; written for developers. */
  readonly message: string;
  /** Finds the server's log lines; absent if no server of ours answered. */
  readonly correlationId?: string | undefined;
  /** The HTTP status; absent for an `error` event and where nothing was answered. */
  readonly status?: number | undefined;
  /** With the code `session_busy`: the turn that runs in this session. `resume({turnId})` attaches. */
  readonly turnId?: string | undefined;
}

/**
 * Why a connection ended before its turn did:
 *
 * | reason | meaning |
 * | --- | --- |
 * | `ended` | the response ended cleanly, but the turn is not over (a proxy, or the server's own limit) |
 * | `network` | the browser reports a network error, or that something else aborted the request |
 * | `idle` | no byte for `idleMs` |
 * | `no_answer` | no response for `answerMs` |
 * | `tokens` | the App Check or ID token could not be had |
 * | `bad_content` | the response is no event stream, or a frame cannot be read |
 * | `handler` | `onEvent` threw |
 * | `woken` | `online`, `pageshow`, back from a freeze, or `reconnect()`: the old connection is not trusted; or a stop takes its place |
 * | `hidden` | `pagehide` or `freeze`: sockets are released |
 */
export type DropReason =
  | 'ended'
  | 'network'
  | 'idle'
  | 'no_answer'
  | 'tokens'
  | 'bad_content'
  | 'handler'
  | 'woken'
  | 'hidden';

/**
 * Something to tell the user about the connection:
 *
 * | notice | meaning |
 * | --- | --- |
 * | `no_answer` | no response for `slowMs`: a cold start, a proxy that holds the response, or, over HTTP/1.1, a browser that has its six connections to this host in use already (other tabs count) |
 * | `buffered` | something between the server and the page holds the stream back: it came late and in one burst, or not at all after its headers |
 * | `offline` | the browser says that it is offline; tried again as soon as it is back |
 */
export type Notice = 'no_answer' | 'buffered' | 'offline';

/** How the connection stands. */
export interface ConnectionView {
  /** Attempts so far, the present one included. */
  readonly attempt: number;
  /** Attempts since the last new event that failed; at `maxFailures` the client gives up. */
  readonly failures: number;
  /** When the next attempt is due (`Date.now()` milliseconds); absent if none is planned. */
  readonly retryAt?: number | undefined;
  /** What ended the last connection; absent once the next one is open. */
  readonly problem?: TurnProblem | undefined;
  /** What to tell the user about the connection, if anything. */
  readonly notice?: Notice | undefined;
}

/**
 * A turn as a page shows it. A new object for each paint, and the same one until then; parts that
 * did not change keep their identity.
 */
export interface TurnView extends TurnState {
  readonly turnId: string;
  /** As given to `start`; absent on a turn that was resumed by its id alone. */
  readonly prompt?: string | undefined;
  readonly sessionId?: string | undefined;
  readonly status: TurnStatus;
  /** The steps that a person has to decide; empty once the turn is over. */
  readonly pending: readonly Step[];
  /** `stop()` was called, and its answer or the turn's end is due. */
  readonly stopping: boolean;
  /** Set with the statuses `error` and `failed`. */
  readonly error?: TurnProblem | undefined;
  readonly connection: ConnectionView;
}

/**
 * A turn to be kept over a reload: JSON, for `sessionStorage` and the like. Give it to
 * `TurnClient.resume`. Its form is this package's own matter; one of another version of the package
 * is not lost: the turn is then read from its start again.
 */
export interface SavedTurn {
  readonly version: 2;
  readonly turnId: string;
  readonly prompt?: string | undefined;
  readonly sessionId?: string | undefined;
  /** The first event has come: before that the start is posted again. */
  readonly begun?: boolean | undefined;
  /** When the start was posted first (`Date.now()`). After two hours it is not, and the turn is asked for. */
  readonly postedAt?: number | undefined;
  /** `stop()` was called, and is asked for again by `resume`. */
  readonly stopping?: boolean | undefined;
  readonly state: TurnState;
}

/** The fold of a turn's events: all that the journal says, and nothing of the connection. */
export interface TurnState {
  /** The id of the last event that was handled; 0 before the first. */
  readonly cursor: number;
  /** The answer so far. A `rewind` can shorten it. */
  readonly text: string;
  /** By number. */
  readonly steps: readonly Step[];
  /** How often text was withdrawn. */
  readonly rewinds: number;
  /** How the turn ended: why it is done, or `error`; absent before that. */
  readonly end?: DoneReason | 'error' | undefined;
  /** What the turn used, as its agent counts it; absent before its end, and if nothing was counted. */
  readonly usage?: Usage | undefined;
  /** How the turn failed. */
  readonly error?: TurnProblem | undefined;
}

/** A value that is being made. */
export type Writable<Value> = { -readonly [Key in keyof Value]: Value[Key] };
