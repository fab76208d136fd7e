/** One turn as a page holds it: what it shows, what a person may do with it, what is kept of it. */

import { after } from './after.js';
import { CAP_MS, judge } from './backoff.js';
import type { Ask } from './calls.js';
import type { TurnHandle } from './client.js';
import { ANSWER_MS, type Connection, connect, type Loss, type Outcome } from './connection.js';
import { TurnError } from './errors.js';
import type { TurnEvent } from './events.js';
import { decided, fold, isPending, waits } from './fold.js';
import { isHidden, isOffline, watch } from './lifecycle.js';
import type { ClientOptions, FunctionName, TurnOptions } from './options.js';
import { painting } from './painter.js';
import { type Deferred, defer } from './promise.js';
import { guarded, teller } from './timeline.js';
import type {
  ConnectionView,
  Notice,
  SavedTurn,
  TurnProblem,
  TurnStatus,
  TurnView,
} from './view.js';

type Decision = 'approve' | 'deny';

const OVER = { code: 'not_pending', message: 'not pending' };

/** Somebody waits for a stop to show, so no delay is long; and it is never given up. */
const PATIENCE = { capMs: 5_000, maxFailures: Infinity };

/** Nothing is due, and nothing to be said. */
const QUIET = { retryAt: undefined, notice: undefined };

/**
 * Follow a turn, from where it was saved; returns at once.
 *
 * One loop, `pursue`, makes one call after the other: a start, resumes, decisions, a stop. What `next`
 * asks for follows from what is known; what came of it, `ended` makes into a time for the next call.
 * All else only changes what is known and wakes the loop.
 */
export function follow(
  saved: SavedTurn,
  client: ClientOptions,
  { onEvent }: TurnOptions,
): TurnHandle {
  // The turn
  const { turnId, prompt, sessionId } = saved;
  let { state, begun, postedAt } = saved;
  let status: TurnStatus = waits(state) ? 'waiting' : 'connecting';
  let error: TurnProblem | undefined;
  let over = false;

  // What a person asked for
  const decisions = new Map<number, Deferred<void> & { decision: Decision }>();
  /** Another step runs: the next decision waits until the stream has said what came of it. */
  let busy = false;
  let stopping: Deferred<void> | undefined;
  /** The stop was answered: the turn's end is on its way. */
  let stopped = false;
  /** When a start's connection was lost last: it may still arrive. */
  let lostAt = postedAt ? Date.now() : 0;

  // The connection
  let connection: ConnectionView = { attempt: 0, failures: 0 };
  let live: Connection | undefined;
  /** It has brought a new event. */
  let progress: boolean;
  /** It has fresh tokens, as the last one was refused for its own. */
  let refreshing = false;
  /** Ends the pause before the next call. */
  let alarm = defer();
  /** The server named the time of the next call: only a person shortens the pause. */
  let firm: boolean;
  /** The page, or the turn, is left: only a stop connects. */
  let left = false;

  const listeners = new Set<() => unknown>();
  const finished = defer<TurnView>();
  const tell = teller(turnId, client.onTimeline);
  const repaint = painting(paint);
  const unwatch = watch((what) => {
    if (what === 'online') wake(true);
    else if (/hide$|freeze/.test(what)) leave();
    else if (what === 'visibilitychange' && isHidden()) repaint(true);
    else {
      left = false;
      wake(false);
    }
  });

  if (saved.stopping) stop().catch(() => {});
  let view = look();
  void pursue();

  return {
    turnId,
    finished: finished.promise,
    getSnapshot: () => view,
    subscribe: (listener) => {
      // One of its own: a function may be subscribed twice, and taken back within a paint.
      const entry = () => listeners.has(entry) && listener();
      listeners.add(entry);
      return () => void listeners.delete(entry);
    },
    approve: (step) => decide(step, 'approve'),
    deny: (step) => decide(step, 'deny'),
    stop,
    reconnect,
    close: () => settle('closed'),
    save: () => ({ ...saved, begun, postedAt, stopping: !!stopping, state }),
  };

  // The loop

  async function pursue(): Promise<void> {
    for (;;) {
      progress = firm = false;
      alarm = defer();
      const call = next();
      const delayMs = call ? await make(call) : Infinity;
      const timer = after(delayMs, alarm.resolve);
      if (delayMs) await alarm.promise;
      clearTimeout(timer);
    }
  }

  /** What to ask for, if anything. */
  function next(): Ask | undefined {
    if (state.end) finish();
    if (stopping) return { name: 'cancel_turn' };
    if (left) return;
    if (error) reconnecting();
    postedAt ??= Date.now();
    // Turns are kept for two hours at least. One that was forgotten since would run anew.
    if (Date.now() - postedAt > 7_200_000) begun = true;
    if (!begun) return { name: 'start_turn', body: { prompt, sessionId } };
    const [first] = decisions;
    if (!first || busy || !waits(state)) return { name: 'resume_turn' };
    const [step, { decision }] = first;
    return { name: 'run_tool_step', body: { step, decision } };
  }

  /** Make a call. Returns when the next is due: in so many milliseconds, or not by itself. */
  async function make(ask: Ask): Promise<number> {
    const { name, body: { step } = {} } = ask;
    // A start that was under way is let through, if that is not slow: then there is a turn to stop.
    const giveWay = () => {
      if (stopping && name === 'start_turn') live?.drop('woken');
    };
    const attempt = connection.attempt + 1;
    live = connect({ ...ask, turnId, cursor: state.cursor, attempt }, client, refreshing, {
      opened: () => {
        refreshing = false;
        tell({ kind: 'open' });
        note({ ...QUIET, problem: undefined });
        if (step !== undefined) {
          state = decided(state, step);
          recorded();
        }
        if (begun && !waits(state)) status = 'streaming';
        giveWay();
      },
      event: came,
      notice: (what) => {
        notice(what);
        giveWay();
      },
      tell,
    });
    note({ ...QUIET, attempt });
    const outcome = await live.outcome;
    live = undefined;
    return ended(outcome, name, step);
  }

  function came(event: TurnEvent): boolean | null {
    if (event.id <= state.cursor) return null;
    onEvent?.(event);
    state = fold(state, event);
    begun = progress = true;
    // A handler may have closed the turn.
    if (over) return false;
    status = 'streaming';
    tell({ kind: 'event', event });
    recorded();
    note({ failures: 0 });
    return !state.end;
  }

  /** What the end of a call means. Returns as `make`. */
  function ended(outcome: Outcome, name: FunctionName, step?: number): number {
    const isStop = name === 'cancel_turn';
    if (outcome.why === 'over') {
      if (!isStop) finish();
      begun = stopped = true;
      return answered();
    }
    if (!isStop && (over || state.end)) return 0;
    if (outcome.why === 'ended' && waits(state)) return wait();
    return lost(outcome, name, step);
  }

  /** The call failed: when is it made again? */
  function lost(loss: Loss, name: FunctionName, step?: number): number {
    const { why, problem, retryAfterMs } = loss;
    const { code } = problem;
    const isStop = name === 'cancel_turn';
    note({ problem });
    // What is put off does not run.
    if (name === 'start_turn' && problem.status !== 429) lostAt = Date.now();
    busy = code === 'turn_busy';
    if (!stopping) reconnecting();
    tell({ kind: 'dropped', why, problem });
    if ((left && !isStop) || why === 'hidden' || why === 'woken') return 0;
    // A browser may be wrong about that: not where events have just come.
    if (why !== 'refused' && !progress && isOffline()) {
      notice('offline');
      if (!isStop) return later(client.backoff?.capMs ?? CAP_MS);
    }
    if (!progress) note({ failures: connection.failures + 1 });
    const isUnknown = isStop && !begun && code === 'unknown_turn';
    if (isUnknown && Date.now() - lostAt >= (client.answerMs ?? ANSWER_MS)) {
      // No start is under way: there will be no turn.
      state = { ...state, end: 'cancelled' };
      return answered();
    }
    const verdict = judge(
      // A turn that is not there yet cannot be stopped yet: to be asked again.
      isUnknown ? { ...loss, retryAfterMs: 0 } : loss,
      connection.failures,
      refreshing,
      { ...client.backoff, ...(isStop && PATIENCE) },
      Math.random(),
    );
    refreshing = verdict === 'refresh';
    if (typeof verdict === 'number') {
      firm = retryAfterMs !== undefined;
      return later(verdict);
    }
    if (refreshing) return 0;
    if (isStop) {
      stopping?.reject(new TurnError(problem));
      return answered();
    }
    if (verdict === 'failed') {
      error = problem;
      stopped = false;
      reject(problem);
      show(verdict);
      return Infinity;
    }
    // That decision is refused, not the turn: what became of the step, a resume says.
    if (step !== undefined) take(step)?.reject(new TurnError(problem));
    else {
      // A start that was refused is not posted again, not by a reloaded page either.
      if (!begun) state = { ...state, end: 'error', error: problem };
      settle('error', problem);
    }
    return 0;
  }

  function later(delayMs: number): number {
    note({ retryAt: Date.now() + delayMs });
    tell({ kind: 'retry', delayMs, failures: connection.failures });
    return delayMs;
  }

  /** The turn waits for a person: for a decision made here, or one that is learned of later. */
  function wait(): number {
    busy = false;
    if (decisions.size) return 0;
    const ends = state.steps
      .filter(isPending())
      .map(({ expiresAt }) => Date.parse(expiresAt ?? '') || Infinity);
    // That it was found waiting is no failure: waits are long, and those of their looks would add up.
    note({ failures: 0 });
    show('waiting');
    // 5 s after its time the server is asked for that, and every 5 s then: clocks differ.
    return Math.max(Math.min(...ends) - Date.now(), 0) + 5_000;
  }

  /** The stop is answered. */
  function answered(): number {
    stopping?.resolve();
    stopping = undefined;
    note({ failures: 0, problem: undefined });
    return 0;
  }

  function reconnecting(): void {
    error = undefined;
    status = begun ? 'reconnecting' : 'connecting';
  }

  // What wakes it

  /** For a reason from outside: a connection is dropped if it is suspect, or silent for too long. */
  function wake(suspect: boolean): void {
    if (!live) firm || alarm.resolve();
    else if (suspect || live.isStale()) live.drop('woken');
  }

  /** For a person: no pause holds, and the count of failures starts again. */
  function reconnect(): void {
    note({ failures: 0 });
    live?.drop('woken');
    alarm.resolve();
  }

  /** The page, or the turn, is left: its socket is released, but for a stop. */
  function leave(): void {
    left = true;
    note({ retryAt: undefined });
    if (!stopping) live?.drop('hidden');
    alarm.resolve();
  }

  // What is told and noted

  function notice(notice: Notice): void {
    if (notice !== connection.notice) tell({ kind: 'notice', notice });
    note({ notice });
  }

  function note(news: Partial<ConnectionView>): void {
    connection = { ...connection, ...news };
    if (!over) repaint();
  }

  // What a person does

  async function decide(step: number, decision: Decision): Promise<void> {
    // Asked for in `onEvent`, the step is known once that returned.
    await null;
    const known = state.steps.find((each) => each.step === step);
    if (!known || over || status === 'failed') throw new TurnError(error ?? OVER);
    if (known.status !== 'pending') return;
    const entry = { ...(decisions.get(step) ?? defer()), decision };
    decisions.set(step, entry);
    wake(false);
    return entry.promise;
  }

  /** Take out the decisions that are recorded. */
  function recorded(): void {
    for (const [step] of decisions)
      if (!state.end && !state.steps.some(isPending(step))) take(step)?.resolve();
  }

  function take(step: number): Deferred<void> | undefined {
    const entry = decisions.get(step);
    decisions.delete(step);
    return entry;
  }

  function stop(): Promise<void> {
    // As painted last: who hears of something may have left the turn in the midst of it.
    if (over && view.status !== 'closed') return Promise.resolve();
    if (!stopping) {
      stopping = defer();
      note({ failures: 0 });
      if (begun || connection.notice) live?.drop('woken');
      alarm.resolve();
    }
    return stopping.promise;
  }

  // Ends and paints

  /** There are no more events. */
  function finish(): void {
    settle(state.error ? 'error' : state.end === 'cancelled' ? state.end : 'done', state.error);
  }

  /** Nothing more will happen. */
  function settle(end: TurnStatus, reason?: TurnProblem): void {
    if (over) return;
    over = true;
    error = reason;
    unwatch();
    // A stop that was asked for is still to be sent when the turn is just left.
    if (end !== 'closed') answered();
    leave();
    reject(reason ?? OVER);
    show(end);
  }

  function reject(reason: TurnProblem): void {
    for (const [step] of decisions) take(step)?.reject(new TurnError(reason));
  }

  function show(now: TurnStatus): void {
    status = now;
    tell({ kind: 'settled', status });
    repaint(true);
    if (status !== 'waiting') finished.resolve(view);
  }

  function paint(): void {
    view = look(view);
    for (const listener of [...listeners]) guarded(listener);
  }

  function look(last?: TurnView): TurnView {
    return {
      ...state,
      turnId,
      prompt,
      sessionId,
      status,
      pending: over
        ? []
        : last?.steps === state.steps
          ? last.pending
          : state.steps.filter(isPending()),
      stopping: !!stopping || (stopped && !over),
      error,
      connection,
    };
  }
}
