/** The lab *Idle timeout*: a proxy that cuts silent connections, while the agent thinks or a tool runs. */

import { h, say } from '../dom.js';
import { BadNetwork, isKeepAlive } from '../network.js';
import { IdleChart, type Lane } from './idle_chart.js';
import type { Parts } from './parts.js';

const PATIENCE = ['10', '15', '60'];
const SILENCE = ['12', '25', '45'];

/** Return the lab's section. */
export function idleTimeoutLab(parts: Parts): HTMLElement {
  const patience = choice(
    'patience',
    'The proxy cuts after',
    PATIENCE.map((s) => [s, `${s} s`]),
  );
  const who = choice('who', 'In the silence', [
    ['think', 'the agent thinks'],
    ['tool', 'a tool runs'],
  ]);
  const silence = choice(
    'silence',
    'for',
    SILENCE.map((s) => [s, `${s} s`]),
    '25',
  );
  const run = h('button', { type: 'button', class: 'primary', id: 'run-idle-timeout' }, 'Run');
  const chart = new IdleChart();
  const outcome = h('p', { class: 'outcome', role: 'status' });
  run.addEventListener('click', async () => {
    run.disabled = true;
    say(outcome, 'Two turns run, each behind a proxy of its own …');
    try {
      const prompt = promptFor(who.value(), Number(silence.value()));
      const seconds = Number(patience.value());
      chart.begin(Number(silence.value()) + 5);
      const runs = [
        follow(parts, prompt, seconds, true, chart.lane(0)),
        follow(parts, prompt, seconds, false, chart.lane(1)),
      ] as const;
      // If one fails, the other still draws: the next run's picture is to be its own.
      await Promise.allSettled(runs);
      const [counted, uncounted] = await Promise.all(runs);
      const same =
        counted.text === uncounted.text ? 'Both answers are the same' : 'The answers differ';
      say(
        outcome,
        `${same}. The proxy ${cut(counted.cuts)} where keep-alives count, and ${cut(uncounted.cuts)} where they do not.`,
      );
    } catch (error) {
      say(outcome, `The lab could not be run: ${(error as Error).message}`);
    }
    chart.end();
    run.disabled = false;
  });
  return h(
    'section',
    { class: 'lab', id: 'lab-idle-timeout', 'aria-labelledby': 'idle-timeout-title' },
    h('h2', { id: 'idle-timeout-title' }, 'Idle timeout'),
    h(
      'p',
      {},
      'Proxies end a connection that is silent for too long. The functions send a keep-alive in every ' +
        'silence of 4 s, and most proxies count it. Behind one that does not, the client resumes after ' +
        'each cut: no event is missed, none comes twice.',
    ),
    h('div', { class: 'controls' }, patience.element, who.element, silence.element, run),
    chart.element,
    outcome,
  );
}

function promptFor(who: string, seconds: number): string {
  return who === 'think'
    ? `Think hard about leases silence=${seconds} rate=30 words=40`
    : `Look up the order (query=${seconds}) silence=0 rate=30 words=40`;
}

/** Run one turn behind a proxy; draw what happens; resolve with its text and how often it was cut. */
async function follow(
  parts: Parts,
  prompt: string,
  seconds: number,
  keepAlivesCount: boolean,
  lane: Lane,
): Promise<{ text: string; cuts: number }> {
  const network = new BadNetwork();
  network.patience = {
    ms: seconds * 1000,
    counts: (piece) => keepAlivesCount || !isKeepAlive(piece),
  };
  let cuts = 0;
  const client = parts.client(network.fetch, (entry) => {
    if (entry.kind === 'open') lane.open();
    else if (entry.kind === 'event') lane.event();
    else if (entry.kind === 'ping') lane.ping();
    else if (entry.kind === 'dropped') {
      cuts += 1;
      lane.cut();
    } else if (entry.kind === 'settled') lane.close();
  });
  const turn = client.start({ prompt });
  const view = await turn.finished;
  // Given up, it would be tried again whenever the page is looked at.
  turn.close();
  if (view.status !== 'done') throw new Error(view.error?.message ?? view.status);
  return { text: view.text, cuts };
}

/** A row of choices, of which one is taken. */
function choice(
  name: string,
  legend: string,
  options: readonly (readonly [value: string, words: string])[],
  taken = options[0]?.[0],
): { element: HTMLElement; value(): string } {
  const inputs = options.map(([value, words]) => {
    const input = h('input', {
      type: 'radio',
      name: `idle-${name}`,
      value,
      checked: value === taken,
    });
    return { input, label: h('label', {}, input, h('span', {}, words)) };
  });
  const row = h('div', { class: 'choice' }, ...inputs.map(({ label }) => label));
  return {
    element: h('fieldset', {}, h('legend', {}, legend), row),
    value: () => inputs.find(({ input }) => input.checked)?.input.value ?? '',
  };
}

function cut(times: number): string {
  return times === 0 ? 'never cut' : times === 1 ? 'cut once' : `cut ${times} times`;
}
