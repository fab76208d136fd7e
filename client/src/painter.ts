/** When a page is told of changes: at most once per animation frame, and at once when it matters. */

import type { Schedule } from './options.js';

const HIDDEN_MS = 250;
const FRAME_MS = 16;

/** Paints after any number of requests. */
export interface Painter {
  /** Ask for a paint, soon: however often that is asked, there is one. */
  readonly request: () => void;
  /** Paint now, once, what was asked for before included. */
  readonly flush: () => void;
  /** Paint now if that was asked for: a tab that is hidden gets no more frames. */
  readonly settle: () => void;
}

/** Return a painter that calls `paint`. */
export function painting(paint: () => void, schedule: Schedule = nextFrame): Painter {
  let due = false;
  let cancel: (() => void) | undefined;
  return {
    request: () => {
      if (due) return;
      due = true;
      cancel = schedule(() => due && flush());
    },
    flush,
    settle: () => due && flush(),
  };

  function flush(): void {
    due = false;
    cancel?.();
    cancel = undefined;
    paint();
  }
}

function nextFrame(paint: () => void): () => void {
  const { hidden } = (globalThis.document as Document | undefined) ?? {};
  if (!hidden && 'requestAnimationFrame' in globalThis) {
    const frame = requestAnimationFrame(paint);
    return () => cancelAnimationFrame(frame);
  }
  const timer = setTimeout(paint, hidden ? HIDDEN_MS : FRAME_MS);
  return () => clearTimeout(timer);
}
