/** When a page is told of changes: at most once per animation frame, and at once when it matters. */

import type { Schedule } from './options.js';

const HIDDEN_MS = 250;
const FRAME_MS = 16;

/** Runs `paint` after any number of requests. */
export class Painter {
  readonly #paint: () => void;
  readonly #schedule: Schedule;
  #cancel: (() => void) | null = null;

  constructor(paint: () => void, schedule: Schedule = nextFrame) {
    this.#paint = paint;
    this.#schedule = schedule;
  }

  /** Ask for a paint, soon: however often that is asked, there is one. */
  request(): void {
    if (this.#cancel) return;
    // A schedule may paint at once; then there is nothing to take back.
    let painted = false;
    const cancel = this.#schedule(() => {
      painted = true;
      this.#cancel = null;
      this.#paint();
    });
    if (!painted) this.#cancel = cancel;
  }

  /** Paint now, once, what was asked for before included. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = null;
    this.#paint();
  }

  /** Paint now if that was asked for: a tab that is hidden gets no more frames. */
  settle(): void {
    if (this.#cancel) this.flush();
  }
}

function nextFrame(paint: () => void): () => void {
  const hidden = typeof document !== 'undefined' && document.hidden;
  if (!hidden && typeof requestAnimationFrame === 'function') {
    const frame = requestAnimationFrame(paint);
    return () => cancelAnimationFrame(frame);
  }
  const timer = setTimeout(paint, hidden ? HIDDEN_MS : FRAME_MS);
  return () => clearTimeout(timer);
}
