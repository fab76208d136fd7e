/**
 * The conversation, kept over reloads and shared by the tabs of one guest, in `localStorage`: a list
 * of turn ids, and each turn as the client saves it.
 */

import { newTurnId, type SavedTurn } from 'agent-turns-client';

const MOST_TURNS = 30;

export class Store {
  readonly #root: string;

  constructor(uid: string) {
    this.#root = `agent-turns:${uid}`;
  }

  /** The conversation's id, by which the server knows what was said before. */
  get session(): string {
    const known = localStorage.getItem(`${this.#root}:session`);
    const session = known ?? newTurnId();
    if (!known) this.#put('session', session);
    return session;
  }

  /** The turns of the conversation, oldest first. */
  turnIds(): string[] {
    return read<string[]>(this.#key('turns')) ?? [];
  }

  /** A turn as it was saved last; null if it is not known. */
  load(turnId: string): SavedTurn | null {
    return read<SavedTurn>(this.#key(`turn:${turnId}`));
  }

  /** Keep a new turn, at the end of the list. */
  add(saved: SavedTurn): void {
    this.#put(`turn:${saved.turnId}`, JSON.stringify(saved));
    const ids = [...this.turnIds(), saved.turnId];
    for (const old of ids.splice(0, ids.length - MOST_TURNS)) {
      localStorage.removeItem(this.#key(`turn:${old}`));
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
    for (const turnId of this.turnIds()) localStorage.removeItem(this.#key(`turn:${turnId}`));
    localStorage.removeItem(this.#key('session'));
    localStorage.removeItem(this.#key('turns'));
  }

  /** Call `listener` when another tab changed the list. */
  onChange(listener: () => void): void {
    addEventListener('storage', (event) => {
      if (event.key === this.#key('turns')) listener();
    });
  }

  #key(name: string): string {
    return `${this.#root}:${name}`;
  }

  /** A full or a forbidden store costs the reload its place, and nothing else. */
  #put(name: string, value: string): void {
    try {
      localStorage.setItem(this.#key(name), value);
    } catch (error) {
      console.warn('The conversation could not be kept.', error);
    }
  }
}

function read<T>(key: string): T | null {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null') as T | null;
  } catch {
    return null;
  }
}
