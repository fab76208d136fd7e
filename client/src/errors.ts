import type { DropReason, TurnProblem } from './view.js';

/** What `approve`, `deny` and `stop` reject with. */
export class TurnError extends Error {
  /** Why: the server's answer, or what this client says in its place. */
  readonly problem: TurnProblem;

  constructor(problem: TurnProblem) {
    super(problem.message);
    this.name = 'TurnError';
    this.problem = problem;
  }
}

/** Thrown while a stream is read, to drop its connection. */
export class Dropped extends Error {
  constructor(
    readonly why: DropReason,
    message: string,
  ) {
    super(message);
  }
}
