/** When a page is told of changes: at most once per animation frame, and at once when it matters. */

import { isHidden } from './lifecycle.js';

/**
 * Return what asks for a call of `paint`, once however often that is asked: at the next animation
 * frame; where there is none, after 16 ms (hidden tabs, whose timers browsers slow down, and Node.js);
 * or at once, what was asked for before included.
 */
export function painting(paint: () => void): (atOnce?: boolean) => void {
  let due = false;
  return (atOnce) => {
    if (atOnce) return flush();
    if (due) return;
    due = true;
    // What was painted meanwhile is not painted again.
    const frame = () => due && flush();
    if (!isHidden() && 'requestAnimationFrame' in globalThis) requestAnimationFrame(frame);
    else setTimeout(frame, 16);
  };

  function flush(): void {
    due = false;
    paint();
  }
}
