/** The log of the wire: events with their ids, pings, drops, reconnects. Runs of tokens are one line. */

import type { TimelineEntry } from 'agent-turns-client';
import { h, say } from './dom.js';

const MOST_ROWS = 500;

interface Row {
  readonly kind: string;
  readonly at: number;
  readonly turnId: string;
  words: string;
  /** Of a run: the ids at its ends, and how many there were. */
  first: number;
  last: number;
  count: number;
  element: HTMLElement | null;
}

export class Timeline {
  readonly #rows: Row[] = [];
  /** When this page last asked for a turn: of others there is nothing to tell. */
  readonly #asked = new Map<string, number>();
  /** Rows before this one are on the page as they are. */
  #drawn = 0;
  #due = false;
  #begun = 0;

  constructor(
    private readonly list: HTMLElement,
    private readonly empty: HTMLElement,
  ) {}

  /** Note what the client tells. Cheap: it is drawn at the next frame. */
  add(entry: TimelineEntry): void {
    const { at, turnId } = entry;
    const row = (kind: string, words: string) => this.#push(kind, at, turnId, words);
    switch (entry.kind) {
      case 'request': {
        this.#asked.set(turnId, at);
        const after = entry.cursor > 0 ? ` after ${entry.cursor}` : '';
        // A decision is no further attempt at what came before it.
        const isAgain = entry.attempt > 1 && entry.call !== 'run_tool_step';
        return row('call', `${entry.call}${after}${isAgain ? ` · attempt ${entry.attempt}` : ''}`);
      }
      case 'open':
        return row('open', `after ${at - (this.#asked.get(turnId) ?? at)} ms`);
      case 'ping':
        return this.#run('ping', at, turnId, 0);
      case 'ignored':
        return this.#run('ignored', at, turnId, Number(entry.id) || 0);
      case 'event': {
        const { event } = entry;
        if (event.type === 'token') return this.#run('token', at, turnId, event.id);
        return row(event.type, `${event.id} · ${eventWords(event)}`);
      }
      case 'dropped':
        return row(entry.why === 'refused' ? 'error' : 'drop', dropWords(entry));
      case 'retry':
        return row('wait', `next attempt in ${(entry.delayMs / 1000).toFixed(1)} s`);
      case 'notice':
        return row('wait', entry.notice);
      case 'settled':
        return this.#asked.has(turnId) ? row('rest', entry.status) : undefined;
    }
  }

  /** Note what was done on this page. */
  note(kind: string, words: string): void {
    this.#push(kind, Date.now(), '', words);
  }

  clear(): void {
    this.#rows.length = 0;
    this.#drawn = 0;
    this.#begun = 0;
    this.list.replaceChildren();
    this.empty.hidden = false;
  }

  #run(kind: string, at: number, turnId: string, id: number): void {
    const last = this.#rows.at(-1);
    if (last?.kind !== kind || last.turnId !== turnId) {
      this.#push(kind, at, turnId, '');
      const added = this.#rows.at(-1);
      if (added) [added.first, added.last] = [id, id];
      return;
    }
    last.last = id;
    last.count += 1;
    this.#drawn = Math.min(this.#drawn, this.#rows.length - 1);
    this.#draw();
  }

  #push(kind: string, at: number, turnId: string, words: string): void {
    this.#begun ||= at;
    this.#rows.push({ kind, at, turnId, words, first: 0, last: 0, count: 1, element: null });
    if (this.#rows.length > MOST_ROWS) {
      this.#rows.shift()?.element?.remove();
      this.#drawn = Math.max(0, this.#drawn - 1);
    }
    this.#draw();
  }

  #draw(): void {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      const { list } = this;
      const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      for (const row of this.#rows.slice(this.#drawn)) this.#show(row);
      this.#drawn = this.#rows.length;
      this.empty.hidden = this.#rows.length > 0;
      if (atEnd) list.scrollTop = list.scrollHeight;
    });
  }

  #show(row: Row): void {
    const words = row.words || runWords(row);
    if (row.element) {
      const what = row.element.lastElementChild;
      if (what) say(what, words);
      return;
    }
    const at = ((row.at - this.#begun) / 1000).toFixed(2);
    row.element = h(
      'li',
      { 'data-kind': row.kind },
      h('span', { class: 'at' }, at),
      h('span', { class: 'kind' }, row.kind.replace(/_.*/, '')),
      h('span', { class: 'what' }, words),
    );
    this.list.append(row.element);
  }
}

function runWords(row: Row): string {
  if (row.kind === 'ping') return row.count > 1 ? `× ${row.count}` : '';
  return row.count > 1 ? `${row.first}–${row.last} · ${row.count}` : String(row.first);
}

function dropWords({ why, problem }: Extract<TimelineEntry, { kind: 'dropped' }>): string {
  if (why === 'refused') return `${problem.status} ${problem.code}`;
  return problem.message === why ? why : `${why}: ${problem.message}`;
}

function eventWords(event: Extract<TimelineEntry, { kind: 'event' }>['event']): string {
  switch (event.type) {
    case 'token':
      return event.data;
    case 'tool_start':
      return `${event.data.tool} starts`;
    case 'tool_pending':
      return `${event.data.tool} asks`;
    case 'tool_end':
      return `${event.data.tool}: ${event.data.status}`;
    case 'rewind':
      return `to ${event.data.to}: ${event.data.length} characters stay`;
    case 'done':
      return event.data.reason;
    case 'error':
      return event.data.code;
  }
}
