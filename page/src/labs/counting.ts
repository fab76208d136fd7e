/** How often tools took effect since a moment: counted where they do, not where they are shown. */

import type { Effects } from '../control.js';
import type { Parts } from './parts.js';

export interface Count {
  readonly tickets: number;
  /** Null in production, where the demo charges nobody. */
  readonly charges: number | null;
}

/**
 * Locally Firestore and the payment server are asked. In production there is neither a control server
 * nor a payment server, and the tickets are those of which the client was told.
 */
export class Counter {
  #before: Effects | null = null;
  #told = 0;

  constructor(private readonly control: Parts['control']) {}

  /** Count from now on. */
  async begin(): Promise<void> {
    this.#told = 0;
    this.#before = (await this.control?.effects()) ?? null;
  }

  /** A tool ended well, as the client was told. */
  tell(tool: string): void {
    if (tool === 'open_ticket') this.#told += 1;
  }

  async count(): Promise<Count> {
    if (!this.control || !this.#before) return { tickets: this.#told, charges: null };
    const now = await this.control.effects();
    const since = (name: 'tickets' | 'charges') => (now[name] ?? 0) - (this.#before?.[name] ?? 0);
    return { tickets: since('tickets'), charges: since('charges') };
  }
}
