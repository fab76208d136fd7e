/** The React entry point: `agent-turns-client/react`. */

import type { StartRequest, TurnClient, TurnHandle } from './client.js';
import type { TurnOptions } from './options.js';
import type { SavedTurn, TurnView } from './view.js';

/** What {@link useAgentTurn} returns. Its functions keep their identity. */
export interface AgentTurn {
  /** The turn as last painted; null before there is one, and on the server. */
  readonly view: TurnView | null;
  /** Start a turn, leaving the one before it. */
  readonly start: (request: StartRequest, options?: TurnOptions) => TurnHandle;
  /** Go on with a turn, leaving the one before it. */
  readonly resume: (
    saved: SavedTurn | { readonly turnId: string },
    options?: TurnOptions,
  ) => TurnHandle;
  readonly approve: (step: number) => Promise<void>;
  readonly deny: (step: number) => Promise<void>;
  readonly stop: () => Promise<void>;
  readonly reconnect: () => void;
  /** What to keep over a reload; null before there is a turn. */
  readonly save: () => SavedTurn | null;
}

/**
 * Hold one turn in a component. It is left when the component goes, and gone on with if React brings
 * the component back (StrictMode, Activity): leaving is not stopping.
 */
export declare function useAgentTurn(client: TurnClient): AgentTurn;

/**
 * Return the view of a turn that is held elsewhere, such as one in a list of bubbles; null for null.
 * The handle is not closed.
 */
export declare function useTurnView(handle: TurnHandle | null): TurnView | null;
