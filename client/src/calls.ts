/** The requests of the protocol. */

import type { ClientOptions, FunctionName } from './options.js';

/** A call of a function for a turn. */
export interface Call {
  readonly name: FunctionName;
  readonly turnId: string;
  readonly cursor: number;
  readonly body?: object;
  /** The step that it decides. */
  readonly step?: number;
}

/** A request, with its tokens. */
export interface Prepared {
  readonly url: string;
  readonly init: RequestInit;
}

/**
 * Make the request of a call, with fresh tokens.
 *
 * @param refresh - with an ID token that is new, too
 */
export async function prepare(
  { functions, tokens }: ClientOptions,
  { name, turnId, cursor, body }: Call,
  refresh: boolean,
): Promise<Prepared> {
  const [appCheck, idToken] = await Promise.all([tokens.appCheck(), tokens.idToken(refresh)]);
  const headers: Record<string, string> = {
    'X-Firebase-AppCheck': appCheck,
    'X-Stream-Turn-Id': turnId,
  };
  if (idToken) headers['Authorization'] = `Bearer ${idToken}`;
  if (cursor) headers['Last-Event-ID'] = String(cursor);
  if (body) headers['Content-Type'] = 'application/json';
  return {
    url:
      typeof functions === 'string' ? `${functions.replace(/\/+$/, '')}/${name}` : functions[name],
    // Never GET, which caches and proxies may answer or repeat.
    init: { method: 'POST', headers, body: body ? JSON.stringify(body) : null },
  };
}
