/** One turn as a page holds it: what it shows, what a person may do with it, what is kept of it. */

import { problem } from './answer.js';
import type { Call } from './calls.js';
import type { TurnHandle } from './client.js';
import { ANSWER_MS, connect, type Outcome } from './connection.js';
import { TurnError } from './errors.js';
import type { TurnEvent } from './events.js';
import { decided, fold, isPending, waits } from './fold.js';
import { watch } from './lifecycle.js';
import type { ClientOptions, TurnOptions } from './options.js';
import { painting } from './painter.js';
import { type Deferred, defer } from './promise.js';
import { pursue } from './pursuit.js';
import { askToStop } from './stop.js';
import { guarded, teller } from './timeline.js';
import type { SavedTurn, TurnProblem, TurnStatus, TurnView } from './view.js';

type Decision = 'approve' | 'deny';

/** So long after an approval's time the server is asked for that; then each time later, up to 64 s: clocks differ. */
const EXPIRY_MS = 2_000;

/** Turns are kept for two hours at least. One that was forgotten since would run anew. */
const START_MS = 7_200_000;

const OVER = problem('over', 'the turn is over');

/**
 * Follow a turn, from where it was saved; returns at once. The functions below share what is known of
 * it: `pursue` calls the first group, people the second, and both end in the third.
 */
export function follow(
  saved: SavedTurn,
  client: ClientOptions,
  { onEvent }: TurnOptions,
): TurnHandle {
  const { turnId, prompt, sessionId } = saved;
  let { state, begun, postedAt } = saved;
  let status: TurnStatus = waits(state) ? 'waiting' : 'connecting';
  let error: TurnProblem | null = null;
  let over = false;
  /** Another step runs: the next decision waits until the stream has said what came of it. */
  let busy = false;
  /** When a start's connection was lost last: it may still arrive. */
  let lostAt = postedAt ? Date.now() : 0;
  /** How often the turn was found waiting since its last event. */
  let looks = 0;
  let stopping: Deferred<void> | null = null;
  const decisions = new Map<number, Deferred<void> & { decision: Decision }>();
  const listeners = new Set<() => unknown>();
  const finished = defer<TurnView>();
  const tell = teller(turnId, client.onTimeline);
  const painter = painting(paint, client.schedule);
  const pursuit = pursue({ next, admitted, came, rests, lost, fails, changed }, client, tell);
  let view = look();
  const unwatch = watch({
    online: () => pursuit.wake(true),
    shown: pursuit.shown,
    left: pursuit.leave,
    hidden: painter.settle,
  });

  if (state.end) finish();
  else {
    if (saved.stopping) stop().catch(() => {});
    pursuit.connect();
  }

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
    reconnect: pursuit.insist,
    close: () => settle('closed'),
    save: () => ({ ...saved, begun, postedAt, stopping: !!stopping, state }),
  };

  // What the pursuit asks and tells

  function next(): Call | null {
    const call = { turnId, cursor: state.cursor };
    if (error) reconnecting();
    postedAt ??= Date.now();
    if (Date.now() - postedAt > START_MS) begun = true;
    if (!begun) {
      // A start that is stopped is not posted again: the stop's answer says how it stands.
      if (stopping) return null;
      return { ...call, name: 'start_turn', body: { prompt, sessionId: sessionId ?? undefined } };
    }
    const [first] = decisions;
    if (!first || busy || !waits(state)) return { ...call, name: 'resume_turn' };
    const [step, { decision }] = first;
    return { ...call, name: 'run_tool_step', step, body: { step, decision } };
  }

  function admitted({ step }: Call): void {
    if (step !== undefined) {
      state = decided(state, step);
      recorded();
    }
    if (begun && !waits(state)) status = 'streaming';
    changed();
  }

  function came(event: TurnEvent): boolean | null {
    if (event.id <= state.cursor) return null;
    onEvent?.(event);
    state = fold(state, event);
    begun = true;
    looks = 0;
    // A handler may have closed the turn.
    if (over) return false;
    status = 'streaming';
    tell({ kind: 'event', event });
    recorded();
    changed();
    return !state.end;
  }

  function rests(why: Outcome['why']): boolean {
    if (over) return true;
    if (why === 'over' || state.end) finish();
    else if (why === 'ended' && waits(state)) wait();
    else return false;
    return true;
  }

  function lost({ code, status: answered }: TurnProblem): void {
    // Who heard of it may have closed the turn.
    if (over) return;
    if (answered !== 429) lostAt = Date.now();
    busy = code === 'turn_busy';
    reconnecting();
  }

  function fails(verdict: 'error' | 'failed', reason: TurnProblem, { step }: Call): void {
    if (verdict === 'error' && step !== undefined) {
      // That decision is refused, not the turn: what became of the step, a resume says.
      take(step)?.reject(new TurnError(reason));
      return pursuit.connect();
    }
    if (verdict === 'failed') {
      error = reason;
      reject(reason);
      return show(verdict);
    }
    // A start that was refused is not posted again, not by a reloaded page either.
    if (!begun) state = { ...state, end: { type: 'error', error: reason } };
    settle(verdict, reason);
  }

  function reconnecting(): void {
    error = null;
    status = begun ? 'reconnecting' : 'connecting';
    changed();
  }

  function changed(): void {
    if (!over) painter.request();
  }

  /** The turn waits for a person: for a decision made here, or one that is learned of later. */
  function wait(): void {
    busy = false;
    if (decisions.size) return pursuit.connect();
    const ends = state.steps
      .filter(isPending())
      .map(({ expiresAt }) => Date.parse(expiresAt ?? '') || Infinity);
    const left = Math.max(Math.min(...ends) - Date.now(), 0);
    pursuit.look(left + EXPIRY_MS * 2 ** Math.min(looks++, 5));
    show('waiting');
  }

  // What a person does

  async function decide(step: number, decision: Decision): Promise<void> {
    // Asked for in `onEvent`, the step is known once that returned.
    await null;
    const known = state.steps.find((each) => each.step === step);
    if (!known) throw new TurnError(problem('unknown_step', `no step ${step}`));
    if (over || status === 'failed') throw new TurnError(error ?? OVER);
    if (known.status !== 'pending') return;
    const entry = { ...(decisions.get(step) ?? defer()), decision };
    decisions.set(step, entry);
    pursuit.wake(false);
    return entry.promise;
  }

  /** Take out the decisions that are recorded. */
  function recorded(): void {
    for (const [step] of decisions) if (!state.steps.some(isPending(step))) take(step)?.resolve();
  }

  function take(step: number): Deferred<void> | undefined {
    const entry = decisions.get(step);
    decisions.delete(step);
    return entry;
  }

  function stop(): Promise<void> {
    if (over && status !== 'closed') return Promise.resolve();
    if (stopping) return stopping.promise;
    const asked = defer();
    stopping = asked;
    changed();
    void askToStop(
      (refresh) =>
        connect({ name: 'cancel_turn', turnId, cursor: 0 }, client, tell, refresh, {
          // All the browser's connections to the host may be in use: here is one.
          notice: () => begun && pursuit.wake(true),
        }),
      () => !stopping,
      () => !begun && (pursuit.isLive() || Date.now() - lostAt < (client.answerMs ?? ANSWER_MS)),
      client.backoff,
    ).then((refusal) => {
      stopping = null;
      if (refusal?.code === 'unknown_turn' && !begun) {
        state = { ...state, end: { type: 'done', reason: 'cancelled', usage: null } };
        finish();
      } else if (refusal) asked.reject(new TurnError(refusal));
      asked.resolve();
      changed();
      // Its last event is there to be read.
      if (!pursuit.isLive()) pursuit.insist();
    });
    return asked.promise;
  }

  // Ends and paints

  /** There are no more events. */
  function finish(): void {
    const { end } = state;
    if (end?.type === 'error') settle('error', end.error);
    else settle(end?.reason === 'cancelled' ? 'cancelled' : 'done');
  }

  /** Nothing more will happen. */
  function settle(end: TurnStatus, reason: TurnProblem | null = null): void {
    if (over) return;
    over = true;
    error = reason;
    unwatch();
    pursuit.leave();
    reject(reason ?? OVER);
    // A stop that was asked for is still to be sent when the turn is just left.
    if (end !== 'closed') {
      stopping?.resolve();
      stopping = null;
    }
    show(end);
  }

  function reject(reason: TurnProblem): void {
    for (const [step] of decisions) take(step)?.reject(new TurnError(reason));
  }

  function show(now: TurnStatus): void {
    status = now;
    tell({ kind: 'settled', status });
    painter.flush();
    if (status !== 'waiting') finished.resolve(view);
  }

  function paint(): void {
    view = look(view);
    for (const listener of [...listeners]) guarded(listener);
  }

  function look(last?: TurnView): TurnView {
    const { end, ...shown } = state;
    const { reason = null, usage = null } = end?.type === 'done' ? end : {};
    return {
      turnId,
      prompt,
      sessionId,
      status,
      ...shown,
      pending: last?.steps === state.steps ? last.pending : state.steps.filter(isPending()),
      stopping: !!stopping,
      reason,
      usage,
      error,
      connection: pursuit.view(),
    };
  }
}
