/** The requests of the protocol. */

import type { ClientOptions, FunctionName } from './options.js';

/** What a turn asks for. */
export interface Ask {
  readonly name: FunctionName;
  /** `step` is the one that it decides. */
  readonly body?: { readonly step?: number; readonly [field: string]: unknown };
}

/** A call of a function for a turn. */
export interface Call extends Ask {
  readonly turnId: string;
  readonly cursor: number;
  /** Counts the calls for this turn, from 1. */
  readonly attempt: number;
}

/**
 * Return the URL of a call and what to `fetch` it with: fresh tokens.
 *
 * @param refresh - with an ID token that is new, too
 */
export async function prepare(
  { functions, tokens }: ClientOptions,
  { name, turnId, cursor, body }: Call,
  refresh: boolean,
): Promise<[url: string, init: RequestInit]> {
  // The one that is kept for an hour first: where it fails, none that is good for one call is spent.
  const idToken = await tokens.idToken(refresh);
  const appCheck = await tokens.appCheck();
  const headers = {
    'X-Firebase-AppCheck': appCheck,
    'X-Stream-Turn-Id': turnId,
    'Last-Event-ID': `${cursor}`,
    'Content-Type': 'application/json',
    ...(idToken && { Authorization: `Bearer ${idToken}` }),
  };
  return [
    typeof functions === 'string' ? `${functions.replace(/\/+$/, '')}/${name}` : functions[name],
    // Never GET, which caches and proxies may answer or repeat.
    { method: 'POST', headers, body: JSON.stringify(body) },
  ];
}
