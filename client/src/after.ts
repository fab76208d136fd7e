/** Call once, in so long; `Infinity` is never. Returns what `clearTimeout` takes. */
export function after(ms: number, call: () => void): ReturnType<typeof setTimeout> | undefined {
  // What is longer than a timer can be would come at once.
  return ms < Infinity ? setTimeout(call, Math.min(ms, 2 ** 31 - 1)) : undefined;
}
