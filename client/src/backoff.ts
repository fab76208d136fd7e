/** When to try again. */

/** Options of the back-off. All times are milliseconds. */
export interface BackoffOptions {
  /** The first delay is at most this; each further one at most twice the one before. Default 500. */
  readonly baseMs: number;
  /** No delay is longer, but for what `Retry-After` asks. Default 30,000. */
  readonly capMs: number;
  /** After so many failed attempts in a row the client gives up; a new event starts the count again. Default 10. */
  readonly maxFailures: number;
}
