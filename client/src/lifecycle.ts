/** What a browser tells of its page and its network; elsewhere nothing is told. */

/** What a turn does about it. */
export interface Lifecycle {
  /** The network is back: older connections are not to be trusted. */
  readonly online: () => void;
  /** The page is back from the back-forward cache or a freeze, or was made visible or focused. */
  readonly shown: () => void;
  /** The page is left or frozen: its sockets are to be released. */
  readonly left: () => void;
  /** The page is hidden: there are no more animation frames. */
  readonly hidden: () => void;
}

/** Listen; returns what ends that. */
export function watch({ online, shown, left, hidden }: Lifecycle): () => void {
  const page = globalThis.document as Document | undefined;
  // Outside browsers there is no document, and `globalThis` tells nothing.
  const heard: [Partial<EventTarget> | undefined, string, () => void][] = [
    [globalThis, 'online', online],
    [globalThis, 'focus', shown],
    [globalThis, 'pageshow', shown],
    [globalThis, 'pagehide', left],
    [page, 'freeze', left],
    [page, 'resume', shown],
    [page, 'visibilitychange', () => (page?.hidden ? hidden() : shown())],
  ];
  for (const [target, type, listener] of heard) target?.addEventListener?.(type, listener);
  return () => {
    for (const [target, type, listener] of heard) target?.removeEventListener?.(type, listener);
  };
}

/** Whether the browser knows that there is no network. That it knows of none lacking proves nothing. */
export function isOffline(): boolean {
  return (globalThis.navigator as Navigator | undefined)?.onLine === false;
}
