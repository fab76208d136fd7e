/** Telling a page what happens, without letting it get in the way. */

import type { TimelineEntry } from './options.js';

/** Tells of something that happened now. */
export type Tell = (happening: Happening) => void;

type Happening = TimelineEntry extends infer Entry
  ? Entry extends TimelineEntry
    ? Omit<Entry, 'at' | 'turnId'>
    : never
  : never;

/** Return what tells of one turn. */
export function teller(turnId: string, hear?: (entry: TimelineEntry) => void): Tell {
  return (happening) => {
    guarded(() => hear?.({ at: Date.now(), turnId, ...happening } as TimelineEntry));
  };
}

/** Call a page's function; what it throws is the page's, and stops nothing here. */
export function guarded(call: () => unknown): void {
  try {
    call();
  } catch (error) {
    setTimeout(() => {
      throw error;
    });
  }
}
