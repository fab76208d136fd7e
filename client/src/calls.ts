/** The requests of the protocol. */

import { type Connection, connect, type Prepared, type Sink } from './connection.js';
import type { ClientOptions, FunctionName } from './options.js';
import type { Tell } from './timeline.js';

/** A call of a function for a turn. */
export interface Call {
  readonly name: FunctionName;
  readonly turnId: string;
  readonly cursor: number;
  readonly body?: object;
  /** The step that it decides. */
  readonly step?: number;
}

/**
 * Make a call, with tokens of its own.
 *
 * @param refresh - with an ID token that is new, too
 * @param attempt - the number of this attempt to stream; 0 for what streams nothing
 */
export function place(
  call: Call,
  client: ClientOptions,
  tell: Tell,
  refresh: boolean,
  attempt = 0,
  sink: Sink | null = null,
): Connection {
  const prepared = async () => {
    tell({ kind: 'request', call: call.name, attempt, cursor: call.cursor });
    return await prepare(client, call, refresh);
  };
  return connect(prepared, client, sink, attempt === 1 && call.name === 'start_turn');
}

async function prepare(
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
