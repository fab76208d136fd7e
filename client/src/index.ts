/**
 * A consumer of agent turns: starts, resumes, decides and stops them, and folds their events into
 * what a page shows. The wire is docs/PROTOCOL.md.
 *
 * @packageDocumentation
 */

export type { BackoffOptions } from './backoff.js';
export type { StartRequest, TurnHandle } from './client.js';
export { TurnClient } from './client.js';
export { TurnError } from './errors.js';
export type {
  Done,
  DoneReason,
  Failure,
  Rewind,
  ToolCall,
  ToolOutcome,
  ToolRequest,
  ToolStatus,
  TurnEvent,
  Usage,
} from './events.js';
export { newTurnId } from './ids.js';
export type {
  ClientOptions,
  FunctionName,
  FunctionUrls,
  TimelineEntry,
  Tokens,
  TurnOptions,
} from './options.js';
export type {
  ConnectionView,
  DropReason,
  Notice,
  SavedTurn,
  Step,
  StepStatus,
  TurnProblem,
  TurnState,
  TurnStatus,
  TurnView,
} from './view.js';
