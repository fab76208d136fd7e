/** `setTimeout` takes no more: what is longer would come at once. */
const MOST_MS = 2 ** 31 - 1;

/** Call once, in so long; `Infinity` is for good. Returns what `clearTimeout` takes. */
export function after(ms: number, call: () => void): ReturnType<typeof setTimeout> {
  return setTimeout(call, Math.min(ms, MOST_MS));
}
