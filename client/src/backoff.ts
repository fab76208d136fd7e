/** When to try again: decided in values, with no clock and no chance of its own. */

import type { TurnProblem } from './view.js';

/** Options of the back-off. All times are milliseconds. */
export interface BackoffOptions {
  /** The first delay is at most this; each further one at most twice the one before. Default 500. */
  readonly baseMs: number;
  /** No delay is longer, but for what `Retry-After` asks on top. Default 30,000. */
  readonly capMs: number;
  /** After so many failed attempts in a row the client gives up; a new event starts the count again. Default 10. */
  readonly maxFailures: number;
}

/** How a call ended that did not bring its turn to an end. */
export interface Setback {
  readonly problem: TurnProblem;
  /** What `Retry-After` asked for, if anything. */
  readonly retryAfterMs?: number | undefined;
}

/**
 * What to do about a setback: try again in so many milliseconds, or at once with tokens that are
 * fresh in every way (`refresh`); not by itself, as too many attempts in a row failed (`failed`); or
 * never, as the same call would be refused again (`error`).
 */
export type Verdict = number | 'refresh' | 'failed' | 'error';

/** The default of `capMs`. */
export const CAP_MS = 30_000;

/**
 * Return what to do next.
 *
 * @param failures - attempts since the last new event that failed, this one included
 * @param refreshed - the one retry with fresh tokens was made already
 * @param random - from 0 to below 1: full jitter, so that clients that were cut together come apart
 */
export function judge(
  { problem: { code, status }, retryAfterMs }: Setback,
  failures: number,
  refreshed: boolean,
  { baseMs = 500, capMs = CAP_MS, maxFailures = 10 }: Partial<BackoffOptions> = {},
  random: number,
): Verdict {
  // The tokens are at fault: a 401, whatever status a proxy made of it.
  if ((status === 401 || /^(app_check|sign_in)_/.test(code)) && !refreshed) return 'refresh';
  // The same call would be refused again, unless the server names a time to come back.
  const isFinal =
    !status || [408, 425, 429].includes(status) || code === 'internal'
      ? false
      : status < 500 || /^(agent_failed|not_configured)$/.test(code);
  if (retryAfterMs === undefined && isFinal) return 'error';
  if (failures >= maxFailures) return 'failed';
  const most = Math.min(capMs, baseMs * 2 ** Math.max(0, failures - 1));
  return (retryAfterMs ?? 0) + random * most;
}

/**
 * Read a `Retry-After` header, which is seconds or a date; undefined if there is none, or it is neither.
 *
 * @param now - `Date.now()`
 */
export function retryAfter(header: string | null, now: number): number | undefined {
  const text = header ?? '';
  // Engines take `-5` and `7, 7` for days of 2001.
  const ms = /^\d+$/.test(text)
    ? +text * 1000
    : / GMT$/.test(text)
      ? Date.parse(text) - now
      : Number.NaN;
  // A server's word is taken for no longer than 5 minutes.
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), 300_000);
}
