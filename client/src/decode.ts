/** From a frame's fields to an event. */

import type { TurnEvent } from './events.js';
import { type Fields, parse } from './json.js';

/** A frame of a known type that cannot be read: the stream is damaged. */
export class Unreadable extends Error {}

/**
 * Return the event of a frame, or null for one that counts for nothing: it has no id, or its type is
 * none of the closed set.
 *
 * @throws Unreadable - the id is no number of the protocol, or the data is not what its type says
 */
export function decode(id: string, type: string, text: string): TurnEvent | null {
  const data = parse(text);
  const fit = fits(type, data as Fields);
  if (!id || fit === null) return null;
  if (!fit || !/^[1-9]\d*$/.test(id) || !isCount(Number(id)))
    throw new Unreadable(`event ${id.slice(0, 30)} cannot be read`);
  return { id: Number(id), type, data } as TurnEvent;
}

/** Whether the data has what the fold goes by; null for a type that is unknown. */
function fits(type: string, data: Fields): boolean | null {
  switch (type) {
    case 'token':
      return isText(data);
    case 'tool_start':
    case 'tool_pending':
    case 'tool_end':
      return isCount(data?.['step']) && (type !== 'tool_end' || isText(data?.['status']));
    case 'rewind':
      return isCount(data?.['length']);
    case 'done':
      return isText(data?.['reason']);
    case 'error':
      return isText(data?.['code']);
    default:
      return null;
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
