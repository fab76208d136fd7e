/**
 * Yield the pieces of a response's body, to its end or to that of `ended`. By a reader: not every
 * browser can iterate a stream.
 */
export async function* pieces(
  { body }: Response,
  ended: Promise<unknown>,
): AsyncGenerator<Uint8Array, void> {
  const reader = body?.getReader();
  if (!reader) return;
  // The signal releases the socket; this, what a `fetch` of the page's own holds.
  ended.then(() => reader.cancel()).catch(() => {});
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
