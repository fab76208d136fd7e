/** The React entry point: `agent-turns-client/react`. */

import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import type { StartRequest, TurnClient, TurnHandle } from './client.js';
import type { TurnOptions } from './options.js';
import type { SavedTurn, TurnView } from './view.js';

/** What {@link useAgentTurn} returns. Its functions keep their identity. */
export interface AgentTurn {
  /** The turn as last painted; null before there is one, and on the server. */
  readonly view: TurnView | null;
  /** Start a turn, leaving the one before it. After the component went, the turn is left at once. */
  readonly start: (request: StartRequest, options?: TurnOptions) => TurnHandle;
  /** Go on with a turn, leaving the one before it. */
  readonly resume: (
    saved: SavedTurn | { readonly turnId: string },
    options?: TurnOptions,
  ) => TurnHandle;
  /** As `TurnHandle.approve`; these reject if there is no turn. */
  readonly approve: (step: number) => Promise<void>;
  /** As `TurnHandle.deny`. */
  readonly deny: (step: number) => Promise<void>;
  /** As `TurnHandle.stop`. */
  readonly stop: () => Promise<void>;
  /** As `TurnHandle.reconnect`; nothing if there is no turn. */
  readonly reconnect: () => void;
  /** Return what to keep over a reload; null before there is a turn. */
  readonly save: () => SavedTurn | null;
}

/**
 * Hold one turn in a component. It is left when the component goes, and gone on with if React brings
 * the component back (StrictMode, Activity): leaving is not stopping.
 *
 * @param client - the one of the last render is used; best is one that is made outside the component
 */
export function useAgentTurn(client: TurnClient): AgentTurn {
  const [slot] = useState(() => makeSlot(client));
  useEffect(() => slot.use(client), [slot, client]);
  useEffect(slot.mount, [slot]);
  return { view: useTurnView(useSyncExternalStore(slot.subscribe, slot.get, none)), ...slot.acts };
}

/**
 * Return the view of a turn that is held elsewhere, such as one in a list of bubbles; null for null.
 * The handle is not closed.
 */
export function useTurnView(handle: TurnHandle | null): TurnView | null {
  const subscribe = useCallback(
    (listener: () => void) => handle?.subscribe(listener) ?? (() => {}),
    [handle],
  );
  const snapshot = useCallback(() => handle?.getSnapshot() ?? null, [handle]);
  return useSyncExternalStore(subscribe, snapshot, none);
}

const none = () => null;

/** The turn of one component, which outlives the component's effects. */
function makeSlot(client: TurnClient) {
  let handle: TurnHandle | null = null;
  let options: TurnOptions | undefined;
  /** The component went. */
  let gone = false;
  const listeners = new Set<() => void>();
  return {
    use: (now: TurnClient) => {
      client = now;
    },
    get: () => handle,
    subscribe: (listener: () => void) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    mount: () => {
      gone = false;
      // Back again: what was left is gone on with.
      if (handle?.getSnapshot().status === 'closed') hold(client.resume(handle.save(), options));
      return () => {
        gone = true;
        handle?.close();
      };
    },
    acts: {
      start: (request: StartRequest, more?: TurnOptions) => {
        options = more;
        return hold(client.start(request, more));
      },
      resume: (saved: SavedTurn | { readonly turnId: string }, more?: TurnOptions) => {
        options = more;
        return hold(client.resume(saved, more));
      },
      approve: async (step: number) => held().approve(step),
      deny: async (step: number) => held().deny(step),
      stop: async () => held().stop(),
      reconnect: () => handle?.reconnect(),
      save: () => handle?.save() ?? null,
    },
  };

  function held(): TurnHandle {
    if (!handle) throw new Error('there is no turn');
    return handle;
  }

  function hold(next: TurnHandle): TurnHandle {
    handle?.close();
    handle = next;
    // Nobody would ever close it.
    if (gone) next.close();
    for (const listener of [...listeners]) listener();
    return next;
  }
}
