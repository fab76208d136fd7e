/** The user's stop: asked for until it is answered. */

import { type BackoffOptions, judge } from './backoff.js';
import type { Connection } from './connection.js';
import { isOffline } from './lifecycle.js';
import type { TurnProblem } from './view.js';

/** Somebody waits for the stop to show, so no delay is long; after minutes it is given up. */
const PATIENCE = { capMs: 5_000, maxFailures: 100 };
/** Offline, nothing is given up: so many count, which make the delays as long as they get. */
const OFFLINE_FAILURES = 9;

/**
 * Ask for a stop.
 *
 * @param ask - makes one attempt, with fresh tokens if so told
 * @param isMoot - whether the answer does not matter any more: the turn has ended
 * @param comes - whether the turn may still come to be: its start is under way
 * @returns null when the turn has ended, else why it cannot be stopped
 */
export async function askToStop(
  ask: (refresh: boolean) => Connection,
  isMoot: () => boolean,
  comes: () => boolean,
  options?: Partial<BackoffOptions>,
): Promise<TurnProblem | null> {
  const backoff = { ...options, ...PATIENCE };
  let refresh = false;
  for (let failures = 1; !isMoot(); failures = isOffline() ? OFFLINE_FAILURES : failures + 1) {
    const early = comes();
    const { why, problem, retryAfterMs: asked } = await ask(refresh).outcome;
    if (why === 'over' || isMoot()) break;
    // A turn that is not there yet cannot be stopped yet: to be asked again.
    const retryAfterMs = early && problem.code === 'unknown_turn' ? 0 : asked;
    const setback = { problem, retryAfterMs };
    const verdict = judge(setback, failures, refresh, backoff, Math.random());
    refresh = verdict.kind === 'refresh';
    if (verdict.kind === 'retry')
      await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
    else if (!refresh) return problem;
  }
  return null;
}
