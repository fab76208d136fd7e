/** What the labs are made with. */

import type { TimelineEntry, Tokens, TurnClient } from 'agent-turns-client';
import type { Control } from '../control.js';

export interface Parts {
  /** Make a client over another `fetch`. */
  client(fetcher: typeof fetch, onTimeline?: (entry: TimelineEntry) => void): TurnClient;
  /** The URL that a function's name is appended to. */
  readonly functions: string;
  readonly tokens: Tokens;
  /** Null in production: payments are counted on the local stack only. */
  readonly control: Control | null;
}
