/**
 * Follows one turn of the real functions and prints what it hears, for tests/endpoints/test_client.py:
 * a line of JSON for every entry of the timeline, the last one is the view at the end.
 */

import { emulatorTokens } from '../../src/emulator.js';
import { type FunctionUrls, TurnClient } from '../../src/index.js';

interface Orders {
  readonly functions: FunctionUrls;
  readonly project: string;
  readonly turnId: string;
  /** null to resume. */
  readonly prompt: string | null;
  /** After how many bytes the first responses are cut. */
  readonly cuts: readonly number[];
  /** What to say to every step that waits. */
  readonly decision: 'approve' | 'deny' | null;
  /** The event after which to stop. */
  readonly stopAfter: number | null;
}

const orders: Orders = JSON.parse(process.argv[2] ?? '');
const cuts = [...orders.cuts];

const client = new TurnClient({
  functions: orders.functions,
  tokens: emulatorTokens(orders.project),
  fetch: async (url, init) => cut(await fetch(url, init), cuts.shift()),
  backoff: { baseMs: 50, capMs: 500 },
  onTimeline: (entry) => {
    console.log(JSON.stringify(entry));
    if (entry.kind === 'event' && entry.event.id === orders.stopAfter) void turn.stop();
  },
});
const { turnId, prompt } = orders;
const turn = prompt === null ? client.resume({ turnId }) : client.start({ prompt, turnId });
turn.subscribe(() => {
  const { status, pending } = turn.getSnapshot();
  if (status === 'waiting' && orders.decision)
    for (const { step } of pending) void turn[orders.decision](step);
});
console.log(JSON.stringify(await turn.finished));

/** A network that loses the connection after so many bytes. */
function cut(response: Response, bytes: number | undefined): Response {
  if (bytes === undefined || !response.body) return response;
  let left = bytes;
  const body = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        controller.enqueue(chunk.subarray(0, left));
        left -= chunk.length;
        if (left <= 0) controller.error(new TypeError('network error'));
      },
    }),
  );
  return new Response(body, { status: response.status, headers: response.headers });
}
