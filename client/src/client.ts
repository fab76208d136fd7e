import { EMPTY } from './fold.js';
import { newTurnId } from './ids.js';
import type { ClientOptions, TurnOptions } from './options.js';
import { follow } from './turn.js';
import type { SavedTurn, TurnView } from './view.js';

/** Starts turns and resumes them. Holds no connection itself; one is enough for a page. */
export class TurnClient {
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  /**
   * Start a turn and return at once. The start is posted, under the same turn id, until the first
   * event has come; it runs once however often it is posted.
   */
  start(request: StartRequest, options: TurnOptions = {}): TurnHandle {
    const { prompt, sessionId, turnId = newTurnId() } = request;
    return follow({ ...FRESH, turnId, prompt, sessionId }, this.#options, options);
  }

  /**
   * Go on with a turn: one that was saved from where it was, one known by its id from its first
   * event. One that was saved at its end connects to nothing.
   */
  resume(saved: SavedTurn | { readonly turnId: string }, options: TurnOptions = {}): TurnHandle {
    return follow(
      isSaved(saved) ? saved : { ...FRESH, turnId: saved.turnId, begun: true },
      this.#options,
      options,
    );
  }
}

function isSaved(saved: { readonly turnId: string }): saved is SavedTurn {
  const { version, state } = saved as Partial<SavedTurn>;
  return version === 2 && Array.isArray(state?.steps);
}

const FRESH = { version: 2, state: EMPTY } as const;

/** What a turn is started with. */
export interface StartRequest {
  /** Not blank, at most 50,000 characters. */
  readonly prompt: string;
  /** The conversation that the turn belongs to: 1 to 64 of `A-Za-z0-9_-`. */
  readonly sessionId?: string | undefined;
  /** Made by `newTurnId`. Give one to know it before the start; else a fresh one is made. */
  readonly turnId?: string | undefined;
}

/** One turn, as this page follows it. Its methods may be passed on as plain functions. */
export interface TurnHandle {
  /** What `TurnClient.resume` takes, here or elsewhere. */
  readonly turnId: string;

  /** Return the turn as last painted: the same object until the next paint. */
  getSnapshot(): TurnView;

  /**
   * Call `listener` after every paint: at most once per animation frame, and at once at the end, on
   * an error, when the client gives up, and when the tab is hidden. Returns what unsubscribes.
   */
  subscribe(listener: () => void): () => void;

  /**
   * Let a pending step run. Resolves once the decision is recorded, by whomever: of several deciders
   * one decides, and the step's outcome shows which. Decisions are sent one after the other, each
   * when the turn waits. Rejects with a {@link TurnError} if the server refuses it for good, if the
   * turn is over first, or if the client gives up.
   */
  approve(step: number): Promise<void>;

  /** Forbid a pending step; the agent is told so. Otherwise as `approve`. */
  deny(step: number): Promise<void>;

  /**
   * Stop the turn for good, whoever runs it. Asked for until it is answered, also offline, after `close` and
   * after a reload of a saved turn; in place of the stream, which is read to its end then. Resolves with the
   * answer. The turn's end may be another: it was over already. The status `cancelled` comes with its last event.
   * Rejects with a {@link TurnError} if the server refuses it for good.
   */
  stop(): Promise<void>;

  /** Connect anew, now; also after the client gave up. */
  reconnect(): void;

  /** Leave the turn, which goes on at the server; nothing is painted any more. */
  close(): void;

  /** Return what `TurnClient.resume` goes on from, events not painted yet included. */
  save(): SavedTurn;

  /** Resolves, never rejects, when the turn is over, given up or closed. */
  readonly finished: Promise<TurnView>;
}
