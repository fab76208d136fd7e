/** The fold of a turn's events into its state: pure, and the same as `functions/wire/fold.py`. */

import type { TurnEvent } from './events.js';
import type { Step, TurnState, Writable } from './view.js';

/** A turn of which no event has come. */
export const EMPTY: TurnState = { cursor: 0, text: '', steps: [], rewinds: 0 };

/**
 * Return the state after one more event; `state` itself if the event is a repeat (its id is not above
 * the cursor) or comes after the end. Ids may jump: whoever takes a turn over leaves a gap.
 */
export function fold(state: TurnState, event: TurnEvent): TurnState {
  const { id, type, data } = event;
  if (id <= state.cursor || state.end) return state;
  const next: Writable<TurnState> = { ...state, cursor: id };
  if (type === 'token') next.text += data;
  else if (type === 'rewind') {
    next.text = state.text.slice(0, data.length);
    next.steps = change(state, (step) => step.at > data.length, { at: data.length });
    next.rewinds++;
  } else if (type === 'done') {
    next.end = data.reason;
    next.usage = data.usage;
  } else if (type === 'error') {
    next.end = type;
    next.error = data;
  } else {
    const status =
      type === 'tool_end' ? data.status : type === 'tool_start' ? 'running' : 'pending';
    next.steps = put(state, { ...data, status });
  }
  if (next.end) next.steps = change(state, isOpen, { status: 'stopped' });
  return next;
}

/** Return the state with a recorded decision noted: what it leads to has not come yet. */
export function decided(state: TurnState, step: number): TurnState {
  return { ...state, steps: change(state, isPending(step), { status: 'decided' }) };
}

/** Whether a step waits for a person: that one, or any. */
export function isPending(number?: number): (step: Step) => boolean {
  return ({ step, status }) => status === 'pending' && step === (number ?? step);
}

/**
 * Whether a response that ended cleanly in this state ended because a person is asked. Not while a
 * step runs or a decision was just recorded: then it was cut.
 */
export function waits({ steps }: TurnState): boolean {
  const open = steps.filter(isOpen);
  return open.length > 0 && open.every(isPending());
}

function isOpen({ status }: Step): boolean {
  return ['running', 'pending', 'decided'].includes(status);
}

function put(
  { steps, text }: TurnState,
  news: Partial<Step> & Pick<Step, 'step' | 'tool' | 'status'>,
) {
  const known = steps.find(({ step }) => step === news.step);
  const step = { args: {}, at: text.length, ...known, ...news };
  return [...steps.filter((each) => each !== known), step].sort(
    (one, other) => one.step - other.step,
  );
}

function change(
  { steps }: TurnState,
  which: (step: Step) => boolean,
  news: Partial<Step>,
): readonly Step[] {
  return steps.some(which)
    ? steps.map((step) => (which(step) ? { ...step, ...news } : step))
    : steps;
}
