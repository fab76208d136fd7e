/** The user's stop: asked for until it is answered. */

import { BACKOFF, type BackoffOptions, judge } from './backoff.js';
import type { Connection } from './connection.js';
import type { TurnProblem } from './view.js';

/** Somebody waits for the stop to show: no delay is longer. */
const CAP_MS = 5_000;

/** What a stop needs of its turn. */
export interface Stopping {
  ask(refresh: boolean): Connection;
  readonly backoff: Partial<BackoffOptions> | undefined;
  /** Whether the answer does not matter any more. */
  isMoot(): boolean;
  /** How many attempts may fail. */
  patience(): number;
  /** Whether the turn may still come to be: its start is under way. */
  comes(): boolean;
}

/** Ask until it is answered. Returns null when the turn has ended, else why that is refused for good. */
export async function askToStop(stopping: Stopping): Promise<TurnProblem | null> {
  const backoff = { ...BACKOFF, ...stopping.backoff };
  backoff.capMs = Math.min(backoff.capMs, CAP_MS);
  let refresh = false;
  for (let failures = 1; !stopping.isMoot(); failures++) {
    const comes = stopping.comes();
    const { why, setback } = await stopping.ask(refresh).outcome;
    if (why === 'over') break;
    const { problem } = setback;
    // It cannot be stopped yet: to be asked again.
    const early = comes && problem.code === 'unknown_turn';
    const verdict = judge(
      early ? { ...setback, problem: { ...problem, status: null } } : setback,
      failures,
      refresh,
      { ...backoff, maxFailures: stopping.patience() },
      Math.random(),
    );
    if (verdict.kind === 'stop' || verdict.kind === 'give_up') return problem;
    refresh = verdict.kind === 'refresh';
    if (verdict.kind === 'retry')
      await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
  }
  return null;
}
