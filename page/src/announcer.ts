/** What a screen reader is told: the milestones of a turn, never its tokens one by one. */

import type { TurnView } from 'agent-turns-client';
import { statusWords } from './bubble.js';
import { say } from './dom.js';
import { stepWords, toolWords } from './step.js';

const LONGEST_READ_OUT = 1200;

export class Announcer {
  #status = '';
  readonly #steps = new Map<string, string>();

  constructor(private readonly region: HTMLElement) {}

  /** Tell what is new about a turn that the user waits for. */
  follow(view: TurnView): void {
    const news: string[] = [];
    for (const step of view.steps) {
      const key = `${view.turnId}/${step.step}`;
      if (this.#steps.get(key) === step.status) continue;
      this.#steps.set(key, step.status);
      news.push(`${toolWords(step.tool)}: ${stepWords(step.status)}.`);
    }
    const status = `${view.turnId}/${view.status}`;
    if (status !== this.#status) {
      this.#status = status;
      news.push(`${statusWords(view)}.`);
      if (view.status === 'done' && view.text.length <= LONGEST_READ_OUT) news.push(view.text);
    }
    if (news.length > 0) say(this.region, news.join(' '));
  }
}
