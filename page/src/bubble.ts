/** One turn on the page: what was said, the answer with its tool steps in place, and how it stands. */

import type { TurnHandle, TurnStatus, TurnView } from 'agent-turns-client';
import { h, say } from './dom.js';
import { StepCard } from './step.js';
import { GrowingText } from './text.js';

const PHASE: Readonly<Record<TurnStatus, readonly [phase: string, words: string]>> = {
  connecting: ['connecting', 'Connecting'],
  streaming: ['streaming', 'Answering'],
  waiting: ['waiting', 'Waiting for you'],
  reconnecting: ['retrying', 'Reconnecting'],
  done: ['done', 'Done'],
  cancelled: ['over', 'Stopped'],
  error: ['failed', 'Failed'],
  failed: ['failed', 'Disconnected'],
  closed: ['over', 'Left'],
};

const NOTICES = {
  no_answer: 'No answer yet: a cold start, or six connections of this browser are in use',
  buffered: 'Something on the way holds the stream back',
  offline: 'You are offline',
} as const;

const LONG_WAIT_MS = 2_000;

/** How a turn stands, in a word or two. */
export function statusWords(view: TurnView): string {
  if (view.stopping) return 'Stopping';
  if (view.end === 'length') return 'Cut at its longest';
  return PHASE[view.status][1];
}

export class Bubble {
  readonly element: HTMLElement;
  readonly #answer = h('div', { class: 'answer' });
  readonly #texts: GrowingText[] = [];
  readonly #cards = new Map<number, StepCard>();
  readonly #state = h('span', { class: 'state' });
  readonly #facts = h('span');
  readonly #notice = h('span');
  readonly #again: HTMLButtonElement;
  readonly #problem = h('p', { class: 'problem', hidden: true });
  readonly #said = h('p', { class: 'said' });
  /** Attempts after a lost connection: a turn that waited for a person, or is to be stopped, lost none. */
  #reconnects = 0;
  #attempt = 1;
  #rested = false;
  #order = '';

  constructor(private readonly handle: TurnHandle) {
    this.#again = h(
      'button',
      { type: 'button', class: 'link', hidden: true, click: () => handle.reconnect() },
      'Try again',
    );
    const foot = h('p', { class: 'foot' }, this.#state, this.#facts, this.#notice, this.#again);
    this.element = h(
      'article',
      { class: 'turn', 'aria-label': 'Turn', 'data-turn': handle.turnId },
      this.#said,
      this.#answer,
      this.#problem,
      foot,
    );
    this.show(handle.getSnapshot());
  }

  /** Show the turn as it was painted last. */
  show(view: TurnView): void {
    this.element.dataset.phase = PHASE[view.status][0];
    this.element.dataset.status = view.status;
    this.#said.hidden = view.prompt === undefined;
    say(this.#said, view.prompt ?? '');
    this.#place(view);
    say(this.#state, statusWords(view));
    const isStopped = view.stopping || view.end === 'cancelled';
    const rests = view.status === 'waiting' || isStopped;
    const attempt = Math.max(view.connection.attempt, 1);
    if (!rests && !this.#rested) this.#reconnects += attempt - this.#attempt;
    [this.#attempt, this.#rested] = [attempt, rests];
    say(this.#facts, facts(view, this.#reconnects));
    say(this.#notice, noticeWords(view));
    this.#again.hidden = view.status !== 'failed';
    this.#problem.hidden = view.error === undefined;
    if (view.error) {
      const { code, message, correlationId } = view.error;
      const trace = correlationId ? ` · ${correlationId}` : '';
      this.#problem.replaceChildren(`${message} `, h('code', {}, `${code}${trace}`));
    }
  }

  /** Text, cards, text, …: each card where its call was made. */
  #place(view: TurnView): void {
    const order = view.steps.map((step) => `${step.step}@${step.at}`).join();
    if (order !== this.#order || this.#texts.length === 0) {
      this.#order = order;
      this.#answer.replaceChildren();
      this.#texts.length = 0;
      const calls = new Set(view.steps.map((step) => step.at));
      for (const at of [...calls].sort((one, other) => one - other)) {
        this.#addText();
        for (const step of view.steps.filter((each) => each.at === at)) {
          const card = this.#cards.get(step.step) ?? new StepCard(step, this.handle);
          this.#cards.set(step.step, card);
          this.#answer.append(card.element);
        }
      }
      this.#addText();
    }
    for (const step of view.steps) this.#cards.get(step.step)?.show(step);
    const cuts = [...new Set(view.steps.map((step) => step.at))].sort((one, other) => one - other);
    let from = 0;
    for (const [index, text] of this.#texts.entries()) {
      const cut = cuts[index];
      const part = cut === undefined ? view.text.slice(from) : view.text.slice(from, cut).trimEnd();
      text.show(from === 0 ? part : part.replace(/^\n+/, ''));
      from = cut ?? view.text.length;
    }
  }

  #addText(): void {
    const element = h('div', { class: 'text' });
    this.#texts.push(new GrowingText(element));
    this.#answer.append(element);
  }
}

/** What holds the turn up, if it is for long; the server's own reason, if it gave one. */
function noticeWords({ connection: { notice, problem, retryAt } }: TurnView): string {
  if (notice) return NOTICES[notice];
  if (!retryAt || retryAt - Date.now() < LONG_WAIT_MS) return '';
  const again = `Tried again at ${new Date(retryAt).toLocaleTimeString()}`;
  return problem?.status ? `${again}: ${problem.message}` : again;
}

function facts(view: TurnView, again: number): string {
  return [
    view.cursor > 0 ? `event ${view.cursor}` : '',
    again > 0 ? `${again} reconnect${again > 1 ? 's' : ''}` : '',
    view.rewinds > 0 ? `${view.rewinds} rewind${view.rewinds > 1 ? 's' : ''}` : '',
  ]
    .filter(Boolean)
    .join(' · ');
}
