/** What a browser tells of its page and its network; elsewhere nothing is told. */

const TYPES = 'online focus pageshow resume visibilitychange pagehide freeze'.split(' ');

/** Listen for all that may concern a connection; returns what ends that. */
export function watch(hear: (type: string) => void): () => void {
  const listener = ({ type }: Event) => hear(type);
  // Some go to the document alone, which a window hears as it captures; the focus of what is in the
  // page is not meant. Outside browsers `globalThis` may tell nothing.
  for (const type of TYPES) globalThis.addEventListener?.(type, listener, type !== 'focus');
  return () => {
    for (const type of TYPES) globalThis.removeEventListener?.(type, listener, type !== 'focus');
  };
}

/** Whether the page is a hidden tab. Outside browsers there is none. */
export function isHidden(): boolean {
  return !!(globalThis.document as Document | undefined)?.hidden;
}

/** Whether the browser knows that there is no network. That it knows of none lacking proves nothing. */
export function isOffline(): boolean {
  return (globalThis.navigator as Navigator | undefined)?.onLine === false;
}
