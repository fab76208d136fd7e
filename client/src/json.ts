/** What a JSON object may have. */
export type Fields = Record<string, unknown> | null | undefined;

/** Return what a text says, to be looked at with care; undefined if it is no JSON. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
