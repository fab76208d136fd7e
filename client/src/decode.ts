/** From a frame's fields to an event. */

import type { TurnEvent } from './events.js';

/** A frame of a known type that cannot be read: the stream is damaged. */
export class Unreadable extends Error {}

/** Whether the data, parsed, has what the fold goes by. */
const FITS: Readonly<Record<TurnEvent['type'], (data: Fields) => boolean>> = {
  token: (data) => typeof data === 'string',
  tool_start: isStep,
  tool_pending: isStep,
  tool_end: (data) => isStep(data) && typeof data['status'] === 'string',
  rewind: (data) => isCount(data?.['length']),
  done: (data) => typeof data?.['reason'] === 'string',
  error: (data) => typeof data?.['code'] === 'string',
};

type Fields = Record<string, unknown> | undefined;

/**
 * Return the event of a frame, or null for one that counts for nothing: it has no id, or its type is
 * none of the closed set.
 *
 * @throws Unreadable - the id is no number of the protocol, or the data is not what its type says
 */
export function decode(id: string | undefined, type: string, text: string): TurnEvent | null {
  if (!id || !Object.hasOwn(FITS, type)) return null;
  const number = Number(id);
  if (!/^[1-9][0-9]*$/.test(id) || !isCount(number)) throw new Unreadable(`the id ${clip(id)}`);
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Unreadable(`the data of event ${id}`);
  }
  if (!FITS[type as TurnEvent['type']](data as Fields))
    throw new Unreadable(`the form of event ${id}`);
  return { id: number, type, data } as TurnEvent;
}

function isStep(data: Fields): data is Record<string, unknown> {
  return isCount(data?.['step']) && typeof data?.['tool'] === 'string';
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function clip(text: string): string {
  return text.slice(0, 30);
}
