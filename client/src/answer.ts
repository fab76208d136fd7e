/** Answers that are no event stream, made into values. */

import { retryAfter, type Setback } from './backoff.js';
import { isText } from './decode.js';
import type { Fields } from './json.js';

/** Return the error that was answered: the protocol's, or what a proxy or a platform said instead. */
export function setbackOf({ ok, status, headers }: Response, said: Fields): Setback {
  const error = said?.['error'] as Fields;
  const isOurs = isText(error?.['code']);
  return {
    problem: {
      code: ok ? 'bad_content' : 'http_error',
      message: `${status} ${headers.get('content-type')}`,
      ...(isOurs && error),
      // A page with status 200 is a proxy's or a portal's: not the server's word.
      status: ok && !isOurs ? undefined : status,
    },
    retryAfterMs: retryAfter(headers.get('retry-after'), Date.now()),
  };
}
