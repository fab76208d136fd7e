/**
 * The closed set of events a turn consists of, as docs/PROTOCOL.md, "Events", defines them.
 */

/** How a tool step ended. `in_doubt`: a container died in the call, and nobody knows. */
export type ToolStatus = 'ok' | 'error' | 'denied' | 'expired' | 'timeout' | 'in_doubt';

/** Why a turn is done: by itself, stopped by its user, or at the limit of its length. */
export type DoneReason = 'stop' | 'cancelled' | 'length';

/** What a turn used, as its agent counts it: names and numbers, tokens mostly. */
export type Usage = Readonly<Record<string, number>>;

/** One journaled event of a turn. */
export type TurnEvent =
  /** A piece of the answer's text. */
  | { readonly id: number; readonly type: 'token'; readonly data: string }
  /** A tool was called; one more for the same step is an update. */
  | { readonly id: number; readonly type: 'tool_start'; readonly data: ToolCall }
  /** The one outcome of a tool step. */
  | { readonly id: number; readonly type: 'tool_end'; readonly data: ToolOutcome }
  /** The turn waits for a person to decide this step. */
  | { readonly id: number; readonly type: 'tool_pending'; readonly data: ToolRequest }
  /** The text after event `to` is void: cut it to `length` UTF-16 code units. */
  | { readonly id: number; readonly type: 'rewind'; readonly data: Rewind }
  /** The end: the turn ended as it should. */
  | { readonly id: number; readonly type: 'done'; readonly data: Done }
  /** The end: the turn failed. */
  | { readonly id: number; readonly type: 'error'; readonly data: Failure };

/** The data of `tool_start`. */
export interface ToolCall {
  /** The step's number, by which clients fold. */
  readonly step: number;
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** The data of `tool_end`. */
export interface ToolOutcome {
  /** The number of the step's `tool_start`. */
  readonly step: number;
  readonly tool: string;
  /** How it ended. */
  readonly status: ToolStatus;
  /** What the tool returned, or says of its failure. */
  readonly result: unknown;
}

/** The data of `tool_pending`. */
export interface ToolRequest extends ToolCall {
  /** Until when a decision counts: RFC 3339, UTC. */
  readonly expiresAt: string;
}

/** The data of `rewind`. */
export interface Rewind {
  /** The last event that counts. */
  readonly to: number;
  /** So many UTF-16 code units of the text stay. */
  readonly length: number;
}

/** The data of `done`. */
export interface Done {
  readonly reason: DoneReason;
  readonly usage?: Usage;
}

/** The data of `error`. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  /** Finds the server's log lines. */
  readonly correlationId: string;
}
