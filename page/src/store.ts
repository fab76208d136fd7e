/**
 * The conversation, kept over reloads and shared by the tabs of one guest, in `localStorage`: a list
 * of turn ids, and each turn as the client saves it. Where the browser forbids that, or has no room,
 * it lasts as long as the page.
 */

import { newTurnId, type SavedTurn } from 'agent-turns-client';

const MOST_TURNS = 30;

export class Store {
  readonly #shelf = shelf();
  readonly #root: string;

  constructor(uid: string) {
    this.#root = `agent-turns:${uid}`;
  }

  /** The conversation's id, by which the server knows what was said before. */
  get session(): string {
    const known = this.#shelf.getItem(this.#key('session'));
    const session = known ?? newTurnId();
    if (!known) this.#put('session', session);
    return session;
  }

  /** The turns of the conversation, oldest first. */
  turnIds(): string[] {
    return this.#read<string[]>('turns') ?? [];
  }

  /** A turn as it was saved last; null if it is not known. */
  load(turnId: string): SavedTurn | null {
    return this.#read<SavedTurn>(`turn:${turnId}`);
  }

  /** Keep a new turn, at the end of the list. */
  add(saved: SavedTurn): void {
    this.#put(`turn:${saved.turnId}`, JSON.stringify(saved));
    const ids = [...this.turnIds(), saved.turnId];
    for (const old of ids.splice(0, ids.length - MOST_TURNS)) {
      this.#shelf.removeItem(this.#key(`turn:${old}`));
    }
    this.#put('turns', JSON.stringify(ids));
  }

  /** Keep a turn as it stands now; not one that the list lost, here or in another tab. */
  save(saved: SavedTurn): void {
    if (this.turnIds().includes(saved.turnId))
      this.#put(`turn:${saved.turnId}`, JSON.stringify(saved));
  }

  /** Begin a new conversation, in every tab. */
  clear(): void {
    for (const turnId of this.turnIds()) this.#shelf.removeItem(this.#key(`turn:${turnId}`));
    this.#shelf.removeItem(this.#key('session'));
    this.#shelf.removeItem(this.#key('turns'));
  }

  /** Call `listener` when another tab changed the list. */
  onChange(listener: () => void): void {
    addEventListener('storage', (event) => {
      if (event.key === this.#key('turns')) listener();
    });
  }

  /** Call `listener` with each turn that another tab kept. */
  onSave(listener: (saved: SavedTurn) => void): void {
    addEventListener('storage', ({ key, newValue }) => {
      if (newValue && key?.startsWith(this.#key('turn:')))
        listener(JSON.parse(newValue) as SavedTurn);
    });
  }

  #key(name: string): string {
    return `${this.#root}:${name}`;
  }

  #read<T>(name: string): T | null {
    try {
      return JSON.parse(this.#shelf.getItem(this.#key(name)) ?? 'null') as T | null;
    } catch {
      return null;
    }
  }

  /** A full store costs the reload its place, and nothing else. */
  #put(name: string, value: string): void {
    try {
      this.#shelf.setItem(this.#key(name), value);
    } catch (error) {
      console.warn('The conversation could not be kept.', error);
    }
  }
}

/** `localStorage`; where the browser forbids it, as much of one as is needed, for this page alone. */
function shelf(): Pick<Storage, 'getItem' | 'setItem' | 'removeItem'> {
  try {
    // May be forbidden (the access throws), or there and not to be used (the call does).
    localStorage.removeItem('agent-turns');
    return localStorage;
  } catch {
    const kept = new Map<string, string>();
    return {
      getItem: (key) => kept.get(key) ?? null,
      setItem: (key, value) => void kept.set(key, value),
      removeItem: (key) => void kept.delete(key),
    };
  }
}
