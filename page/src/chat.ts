/** The chat: turns in order, the newest followed; kept over reloads and shared with other tabs. */

import type { SavedTurn, TurnClient, TurnHandle, TurnView } from 'agent-turns-client';
import type { Announcer } from './announcer.js';
import { Bubble } from './bubble.js';
import { h, the } from './dom.js';
import type { Store } from './store.js';

const SAVE_MS = 1000;
const NEAR_END_PX = 80;
const OVER: ReadonlySet<string> = new Set(['done', 'cancelled', 'error', 'closed']);

const STARTERS = [
  [
    'Real work, 12 silent seconds',
    'Open a ticket, look up the order (query=12) and charge me 19 dollars',
  ],
  ['Something you must approve', 'Refund me 19 dollars silence=1'],
  ['A long answer', 'Tell me about leases rate=40 silence=2 words=600'],
  ['2,000 tokens a second', 'Tell me everything rate=2000 silence=0 words=12000'],
] as const;

interface Open {
  readonly handle: TurnHandle;
  readonly bubble: Bubble;
  savedAt: number;
}

export class Chat {
  readonly #turns = new Map<string, Open>();
  readonly #scroll = the('scroll');
  readonly #transcript = the('transcript');
  readonly #prompt = the('prompt', HTMLTextAreaElement);
  readonly #send = the('send', HTMLButtonElement);
  readonly #stop = the('stop', HTMLButtonElement);
  readonly #latest = the('latest', HTMLButtonElement);
  /** The reader is at the newest words, and is kept there. */
  #follows = true;

  constructor(
    private readonly client: TurnClient,
    private readonly store: Store,
    private readonly announcer: Announcer,
    private readonly onPaint: (view: TurnView) => void,
  ) {
    this.#listen();
    this.#offer();
    this.#sync();
    store.onChange(() => this.#sync());
    store.onSave((saved) => this.#heed(saved));
  }

  /** The turn that the composer waits for; null if there is none. */
  get active(): TurnView | null {
    const view = [...this.#turns.values()].at(-1)?.handle.getSnapshot() ?? null;
    return view && !OVER.has(view.status) ? view : null;
  }

  /** Begin a new conversation. Turns that run go on at the server, and are left. */
  clear(): void {
    this.store.clear();
    this.#sync();
    this.#prompt.focus();
  }

  /** Make the page show what the store lists: turns of the last visit, of another tab, or none. */
  #sync(): void {
    const ids = this.store.turnIds();
    for (const [turnId, { handle, bubble }] of this.#turns) {
      if (ids.includes(turnId)) continue;
      handle.close();
      bubble.element.remove();
      this.#turns.delete(turnId);
    }
    for (const turnId of ids) {
      if (this.#turns.has(turnId)) continue;
      this.#add(this.client.resume(this.store.load(turnId) ?? { turnId }));
    }
    this.#refresh();
    if (this.#follows || ids.length === 0) this.#toEnd();
    else this.#latest.hidden = false;
  }

  /** What was stopped in another tab before it began is begun by none: this one may be about to. */
  #heed({ turnId, begun, stopping, state }: SavedTurn): void {
    const open = this.#turns.get(turnId);
    if (open && !begun && (stopping || (state.end && state.end !== 'error'))) stop(open.handle);
  }

  #start(prompt: string): void {
    const handle = this.client.start({ prompt, sessionId: this.store.session });
    this.#add(handle);
    this.store.add(handle.save());
    this.#refresh();
    this.#toEnd();
  }

  #add(handle: TurnHandle): void {
    const open: Open = { handle, bubble: new Bubble(handle), savedAt: 0 };
    this.#turns.set(handle.turnId, open);
    this.#transcript.append(open.bubble.element);
    handle.subscribe(() => this.#paint(open));
  }

  #paint(open: Open): void {
    const view = open.handle.getSnapshot();
    const atEnd = this.#isAtEnd();
    open.bubble.show(view);
    if (atEnd) this.#toEnd();
    this.#latest.hidden = atEnd;
    const now = performance.now();
    if (now - open.savedAt > SAVE_MS || OVER.has(view.status)) {
      open.savedAt = now;
      this.store.save(open.handle.save());
    }
    this.#refresh();
    if (open === [...this.#turns.values()].at(-1)) this.announcer.follow(view);
    this.onPaint(view);
  }

  #refresh(): void {
    const { active } = this;
    the('welcome').hidden = this.#turns.size > 0;
    the('hint').hidden = this.#turns.size > 0;
    this.#send.hidden = active !== null;
    this.#stop.hidden = active === null;
    this.#stop.disabled = active?.stopping ?? false;
  }

  #listen(): void {
    const form = the('composer', HTMLFormElement);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const prompt = this.#prompt.value.trim();
      if (!prompt || this.active) return;
      this.#prompt.value = '';
      this.#start(prompt);
    });
    this.#prompt.addEventListener('keydown', (event) => {
      // The Enter that takes an input method's word; Safari says so by its code alone.
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key !== 'Enter' || event.shiftKey) return;
      event.preventDefault();
      form.requestSubmit();
    });
    this.#stop.addEventListener('click', () => {
      const newest = [...this.#turns.values()].at(-1);
      if (newest) stop(newest.handle);
      // Stop gives way to Send. On a phone a focus here would open the keyboard.
      if (matchMedia('(hover: hover)').matches) this.#prompt.focus();
    });
    this.#latest.addEventListener('click', () => this.#toEnd());
    this.#scroll.addEventListener('scroll', () => {
      this.#follows = this.#isAtEnd();
      if (this.#follows) this.#latest.hidden = true;
    });
    // A phone is turned, its keyboard opens, the window changes: the text is laid out anew.
    new ResizeObserver(() => {
      if (this.#follows) this.#toEnd();
    }).observe(this.#scroll);
    addEventListener('pagehide', () => this.#saveAll());
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) this.#saveAll();
    });
  }

  #saveAll(): void {
    for (const { handle } of this.#turns.values()) this.store.save(handle.save());
  }

  #offer(): void {
    for (const [title, prompt] of STARTERS) {
      const click = () => {
        this.#prompt.value = prompt;
        this.#prompt.focus();
      };
      const words = h('span', {}, prompt);
      const button = h('button', { type: 'button', click }, h('strong', {}, title), words);
      the('starters').append(h('li', {}, button));
    }
  }

  #isAtEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    return scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
  }

  /** To the newest words; without any, to the welcome's beginning. */
  #toEnd(): void {
    this.#scroll.scrollTop = this.#turns.size > 0 ? this.#scroll.scrollHeight : 0;
    this.#follows = true;
    this.#latest.hidden = true;
  }
}

function stop(handle: TurnHandle): void {
  handle.stop().catch((error: Error) => console.warn(error.message));
}
