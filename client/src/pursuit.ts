/** Keeps a turn connected: when to connect, what an ended connection means, when to give up. */

import { after } from './after.js';
import { CAP_MS, judge } from './backoff.js';
import type { Call } from './calls.js';
import { type Connection, type Outcome, connect as open, type Sink } from './connection.js';
import type { TurnEvent } from './events.js';
import { isOffline } from './lifecycle.js';
import type { ClientOptions } from './options.js';
import type { Tell } from './timeline.js';
import type { ConnectionView, Notice, TurnProblem } from './view.js';

/** What a pursuit asks and tells its turn. */
export interface Pursued {
  /** What to ask for next; null for nothing. */
  next(): Call | null;
  /** The call was admitted: its stream is open. */
  admitted(call: Call): void;
  /** As `Sink.event`. */
  came(event: TurnEvent): boolean | null;
  /** Whether nothing is wrong with a connection that ended so: the turn is over, or waits for a person. */
  rests(why: Outcome['why']): boolean;
  /** The connection was lost, or the call refused: another one may follow. */
  lost(problem: TurnProblem): void;
  /** None follows by itself: the call is refused for good (`error`), or too many failed. */
  fails(verdict: 'error' | 'failed', problem: TurnProblem, call: Call): void;
  /** There is something to paint. */
  changed(): void;
}

/** The pursuit of a turn. */
export interface Pursuit {
  readonly view: () => ConnectionView;
  /** Whether a connection is under way. */
  readonly isLive: () => boolean;
  /** Connect, unless a connection is under way. */
  readonly connect: () => void;
  /** As `connect`, for a reason from outside; a connection is dropped if it is suspect or silent. */
  readonly wake: (suspect: boolean) => void;
  /** As `wake`, for a person: no delay holds, and the count of failures starts again. */
  readonly insist: () => void;
  /** The page, or the turn, is left: release the socket, connect to nothing until `shown`. */
  readonly leave: () => void;
  readonly shown: () => void;
  /** Connect once more in so long, if nothing does so before. */
  readonly look: (delayMs: number) => void;
}

/** Nothing is due, and nothing to be said. */
const QUIET = { retryAt: null, notice: null };

/** Return a pursuit of the turn, which begins with `connect`. */
export function pursue(turn: Pursued, client: ClientOptions, tell: Tell): Pursuit {
  let view: ConnectionView = { ...QUIET, attempt: 0, failures: 0, problem: null };
  let live: Connection | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** The present connection has brought a new event. */
  let progress = false;
  /** The present attempt has fresh tokens, as the last one was refused for its own. */
  let refreshing = false;
  /** The server named the time of the next attempt: nothing shortens the delay. */
  let firm = false;
  let left = false;

  return { view: () => view, isLive: () => !!live, connect, wake, insist, leave, shown, look };

  function connect(): void {
    if (live || left) return;
    const call = turn.next();
    clearTimeout(timer);
    if (!call) return note(QUIET);
    progress = firm = false;
    const attempt = view.attempt + 1;
    live = open(call, client, tell, refreshing, sink(call), attempt);
    note({ ...QUIET, attempt });
    void live.outcome.then((outcome) => {
      live = null;
      ended(outcome, call);
    });
  }

  function sink(call: Call): Sink {
    return {
      opened: (waitedMs) => {
        refreshing = false;
        tell({ kind: 'open', attempt: view.attempt, waitedMs });
        note({ ...QUIET, problem: null });
        turn.admitted(call);
      },
      event: (event) => {
        const goesOn = turn.came(event);
        if (goesOn !== null && !progress) {
          progress = true;
          note({ failures: 0 });
        }
        return goesOn;
      },
      ping: () => tell({ kind: 'ping' }),
      notice,
    };
  }

  function ended(outcome: Outcome, call: Call): void {
    const { why, problem } = outcome;
    if (turn.rests(why) || why === 'over') return;
    if (why === 'refused') tell({ kind: why, status: problem.status ?? 0, code: problem.code });
    else tell({ kind: 'dropped', why, message: problem.message });
    note({ problem });
    turn.lost(problem);
    if (left || why === 'hidden' || why === 'woken') return connect();
    // A browser may be wrong about that: not where events have just come.
    if (why !== 'refused' && !progress && isOffline()) {
      notice('offline');
      return later(client.backoff?.capMs ?? CAP_MS);
    }
    if (!progress) note({ failures: view.failures + 1 });
    const verdict = judge(outcome, view.failures, refreshing, client.backoff, Math.random());
    refreshing = verdict.kind === 'refresh';
    if (verdict.kind === 'retry') {
      firm = outcome.retryAfterMs !== null;
      later(verdict.delayMs);
    } else if (verdict.kind === 'refresh') connect();
    else turn.fails(verdict.kind, problem, call);
  }

  function later(delayMs: number): void {
    look(delayMs);
    note({ retryAt: Date.now() + delayMs });
    tell({ kind: 'retry', delayMs, failures: view.failures });
  }

  function look(delayMs: number): void {
    timer = after(delayMs, connect);
  }

  function wake(suspect: boolean): void {
    if (!live) firm || connect();
    else if (suspect || live.isStale()) live.drop('woken');
  }

  function insist(): void {
    firm = false;
    note({ failures: 0 });
    wake(true);
  }

  function leave(): void {
    left = true;
    firm = false;
    clearTimeout(timer);
    note({ retryAt: null });
    live?.drop('hidden');
  }

  function shown(): void {
    left = false;
    wake(false);
  }

  function notice(notice: Notice): void {
    if (notice !== view.notice) tell({ kind: 'notice', notice });
    note({ notice });
  }

  function note(news: Partial<ConnectionView>): void {
    view = { ...view, ...news };
    turn.changed();
  }
}
