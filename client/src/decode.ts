/** From a frame's fields to an event. */

import type { TurnEvent } from './events.js';
import { type Fields, parse } from './json.js';

/**
 * Return the event of a frame, or null for one that counts for nothing: it has no id, or its type is
 * none of the closed set.
 *
 * @throws Error - the stream is damaged: the id is no number of the protocol, or the data is not what
 * its type says
 */
export function decode(id: string, type: string, text: string): TurnEvent | null {
  const fits = FITS.get(type);
  if (!id || !fits) return null;
  const data = parse(text);
  // Decimal digits of a number above 0, and nothing else.
  if (!isCount(+id - 1) || `${+id}` !== id || !fits(data as Fields))
    throw new Error('unreadable event');
  return { id: +id, type, data } as TurnEvent;
}

/** Whether the data of each type has what the fold, and a page, go by. */
const FITS = new Map<string, (data: Fields) => boolean>([
  ['token', isText],
  ['tool_start', isCall],
  ['tool_pending', isCall],
  ['tool_end', (data) => isCall(data) && isText(data?.['status'])],
  ['rewind', (data) => isCount(data?.['length'])],
  ['done', (data) => isText(data?.['reason'])],
  ['error', (data) => isText(data?.['code'])],
]);

function isCall(data: Fields): boolean {
  return isCount(data?.['step']) && isText(data?.['tool']);
}

/** Whether a value is a text. */
export function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
