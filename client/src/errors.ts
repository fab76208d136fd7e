import type { TurnProblem } from './view.js';

/** What `approve`, `deny` and `stop` reject with. */
export class TurnError extends Error {
  /** Why: the server's answer, or what this client says in its place. */
  declare readonly problem: TurnProblem;

  constructor(problem: TurnProblem) {
    super(problem.message);
    this.name = 'TurnError';
    this.problem = problem;
  }
}
