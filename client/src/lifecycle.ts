/** What a browser tells of its page and its network; elsewhere nothing is told. */

/** What a turn does about it. */
export interface Lifecycle {
  /** The network is back: older connections are not to be trusted. */
  online(): void;
  /** The page is back from the back-forward cache or a freeze, or was made visible or focused. */
  shown(): void;
  /** The page is left or frozen: its sockets are to be released. */
  left(): void;
  /** The page is hidden: there are no more animation frames. */
  hidden(): void;
}

/** Listen; returns what ends that. */
export function watch(lifecycle: Lifecycle): () => void {
  if (typeof addEventListener !== 'function') return () => {};
  const page = typeof document === 'undefined' ? null : document;
  const heard: [EventTarget, string, () => void][] = [
    [globalThis, 'online', () => lifecycle.online()],
    [globalThis, 'focus', () => lifecycle.shown()],
    [globalThis, 'pageshow', () => lifecycle.shown()],
    [globalThis, 'pagehide', () => lifecycle.left()],
  ];
  if (page)
    heard.push(
      [page, 'freeze', () => lifecycle.left()],
      [page, 'resume', () => lifecycle.shown()],
      [page, 'visibilitychange', () => (page.hidden ? lifecycle.hidden() : lifecycle.shown())],
    );
  for (const [target, type, listener] of heard) target.addEventListener(type, listener);
  return () => {
    for (const [target, type, listener] of heard) target.removeEventListener(type, listener);
  };
}

/** Whether the browser knows that there is no network. That it knows of none lacking proves nothing. */
export function isOffline(): boolean {
  return typeof navigator !== 'undefined' && navigator.onLine === false;
}
