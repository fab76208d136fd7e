/** Answers that are no event stream, made into values. */

import { retryAfter, type Setback } from './backoff.js';
import { type Fields, parse } from './json.js';
import type { TurnProblem } from './view.js';

const MAX_CHARACTERS = 65_536;

/** What a client says when no server of ours did. */
export function problem(code: string, message: string): TurnProblem {
  return { code, message, correlationId: null, status: null, turnId: null };
}

/** Read a body as JSON; undefined if it is none, or too long. */
export async function readJson(body: AsyncIterable<Uint8Array>): Promise<Fields> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of body) {
    text += decoder.decode(piece, { stream: true });
    if (text.length > MAX_CHARACTERS) break;
  }
  return parse(text) as Fields;
}

/** Return the error that was answered: the protocol's, or what a proxy or a platform said instead. */
export function setbackOf({ ok, status, headers }: Response, said: Fields): Setback {
  const word = (name: string) => {
    const value = (said?.['error'] as Fields)?.[name];
    return typeof value === 'string' ? value : null;
  };
  const code = word('code');
  return {
    problem: {
      code: code ?? (ok ? 'bad_content' : 'http_error'),
      message: word('message') ?? `${status} ${headers.get('content-type')}`,
      correlationId: word('correlationId') ?? headers.get('x-correlation-id'),
      // A page with status 200 is a proxy's or a portal's: not the server's word.
      status: ok && !code ? null : status,
      turnId: word('turnId'),
    },
    retryAfterMs: retryAfter(headers.get('retry-after'), Date.now()),
  };
}
