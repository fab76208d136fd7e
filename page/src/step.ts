/** The card of a tool step: what is called, how it stands, and the question if a person must decide. */

import type { Step, StepStatus } from 'agent-turns-client';
import { h, say } from './dom.js';

export interface Decide {
  approve(step: number): Promise<void>;
  deny(step: number): Promise<void>;
}

const LOOK: Readonly<Record<StepStatus, readonly [look: string, mark: string, words: string]>> = {
  running: ['running', '', 'Running'],
  pending: ['waiting', '?', 'Needs your approval'],
  decided: ['running', '', 'Decided'],
  ok: ['ok', '✓', 'Done'],
  error: ['bad', '!', 'Failed'],
  denied: ['over', '–', 'Denied'],
  expired: ['over', '–', 'Not approved in time'],
  timeout: ['bad', '!', 'Took too long'],
  in_doubt: ['bad', '?', 'In doubt'],
  stopped: ['over', '–', 'Stopped'],
};

/** How a step stands, in words. */
export function stepWords(status: string): string {
  return lookOf(status)[2];
}

/** A server newer than this page may have a status that the page has no look for. */
function lookOf(status: string): (typeof LOOK)[StepStatus] {
  return LOOK[status as StepStatus] ?? ['over', '–', status.replaceAll('_', ' ')];
}

/** A tool's name, as a person would say it. */
export function toolWords(tool: string): string {
  const words = tool.replaceAll('_', ' ');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export class StepCard {
  readonly element: HTMLElement;
  readonly #mark = h('span', { class: 'step-mark', 'aria-hidden': 'true' });
  readonly #state = h('span', { class: 'step-state' });
  readonly #details = h('pre');
  readonly #line = h('summary', { class: 'step-line' });
  readonly #question = h('div', { class: 'ask', hidden: true });
  #shown: Step | null = null;

  constructor(
    step: Step,
    private readonly decide: Decide,
  ) {
    const name = h('span', { class: 'step-name' }, toolWords(step.tool));
    const what = h('span', {}, name, h('span', { class: 'step-args' }, argsWords(step)));
    this.#line.append(this.#mark, what, this.#state);
    this.element = h(
      'section',
      { class: 'step', 'aria-label': toolWords(step.tool) },
      h('details', {}, this.#line, this.#details),
      this.#question,
    );
    this.show(step);
  }

  show(step: Step): void {
    if (step === this.#shown) return;
    const before = this.#shown;
    this.#shown = step;
    const [look, mark, words] = lookOf(step.status);
    this.element.dataset.status = look;
    say(this.#mark, mark);
    say(this.#state, words);
    const result = (step.result ?? null) === null ? {} : { result: step.result };
    const all = { step: step.step, args: step.args, ...result };
    say(this.#details, straight(JSON.stringify(all, null, 2)));
    if (step.status === before?.status) return;
    if (step.status === 'pending') this.#ask(step);
    // Who decided by keyboard goes on from here, and not from the page's top.
    else if (this.#question.contains(document.activeElement)) this.#line.focus();
    this.#question.hidden = step.status !== 'pending';
  }

  #ask(step: Step): void {
    const until = step.expiresAt ? new Date(step.expiresAt) : null;
    const isToday = until?.toDateString() === new Date().toDateString();
    const clock = until?.toLocaleString([], {
      ...(!isToday && { month: 'short', day: 'numeric' }),
      hour: '2-digit',
      minute: '2-digit',
    });
    const words = h(
      'p',
      {},
      `The agent asks to ${step.tool.replaceAll('_', ' ')}.${clock ? ` It waits until ${clock}.` : ''}`,
    );
    const buttons: HTMLButtonElement[] = [];
    const answer = (label: string, style: string, send: (step: number) => Promise<void>) => {
      const click = () => {
        // Not `disabled`, which would lose the focus.
        if (this.#question.ariaBusy === 'true') return;
        this.#question.ariaBusy = 'true';
        say(words, 'Your decision is on its way …');
        send(step.step).catch((error: Error) => {
          this.#question.ariaBusy = 'false';
          say(words, `That could not be decided: ${error.message}`);
        });
      };
      buttons.push(h('button', { type: 'button', class: style, click }, label));
    };
    answer('Approve', 'primary', (number) => this.decide.approve(number));
    answer('Deny', '', (number) => this.decide.deny(number));
    this.#question.ariaBusy = 'false';
    this.#question.replaceChildren(words, ...buttons);
  }
}

function argsWords(step: Step): string {
  const words = Object.entries(step.args)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
  return straight(words);
}

/** Characters that turn the text after them around, as what they are: 19 dollars must not read as 91. */
function straight(text: string): string {
  return text.replace(
    /[\u202a-\u202e\u2066-\u2069]/g,
    (turn) => `\\u${turn.charCodeAt(0).toString(16)}`,
  );
}
