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
  /** What `Retry-After` asked for; null without one. */
  readonly retryAfterMs: number | null;
}

/** What to do about a setback; `error` and `failed` are the statuses that it leads to. */
export type Verdict =
  /** Never: the same call would be refused again. */
  | { readonly kind: 'error' }
  /** Not by itself: too many attempts in a row failed. */
  | { readonly kind: 'failed' }
  /** In so long. */
  | { readonly kind: 'retry'; readonly delayMs: number }
  /** At once, with tokens that are fresh in every way. */
  | { readonly kind: 'refresh' };

/** The default of `capMs`. */
export const CAP_MS = 30_000;
/** A server's word is taken for no longer than this: 5 minutes. */
const RETRY_AFTER_CAP_MS = 300_000;

/**
 * Return what to do next.
 *
 * @param failures - attempts since the last new event that failed, this one included
 * @param refreshed - the one retry with fresh tokens was made already
 * @param random - from 0 to below 1: full jitter, so that clients that were cut together come apart
 */
export function judge(
  { problem, retryAfterMs }: Setback,
  failures: number,
  refreshed: boolean,
  { baseMs = 500, capMs = CAP_MS, maxFailures = 10 }: Partial<BackoffOptions> = {},
  random: number,
): Verdict {
  if (isForTokens(problem) && !refreshed) return { kind: 'refresh' };
  if (retryAfterMs === null && isFinal(problem)) return { kind: 'error' };
  if (failures >= maxFailures) return { kind: 'failed' };
  const most = Math.min(capMs, baseMs * 2 ** Math.max(0, failures - 1));
  return { kind: 'retry', delayMs: (retryAfterMs ?? 0) + random * most };
}

/**
 * Read a `Retry-After` header, which is seconds or a date; null if there is none, or it is neither.
 *
 * @param now - `Date.now()`
 */
export function retryAfter(header: string | null, now: number): number | null {
  const text = header ?? '';
  // Engines take `-5` and `7, 7` for days of 2001.
  const date = / GMT\s*$/.test(text) ? Date.parse(text) - now : Number.NaN;
  const ms = /^\s*\d+\s*$/.test(text) ? Number(text) * 1000 : date;
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), RETRY_AFTER_CAP_MS);
}

/** Whether the tokens are at fault: a 401, whatever status a proxy made of it. */
function isForTokens({ code, status }: TurnProblem): boolean {
  return status === 401 || /^(app_check|sign_in)_/.test(code);
}

/** Whether the same call would be refused again, unless the server named a time to come back. */
function isFinal({ code, status }: TurnProblem): boolean {
  if (status === null || [408, 425, 429].includes(status) || code === 'internal') return false;
  return status < 500 || code === 'agent_failed' || code === 'not_configured';
}
