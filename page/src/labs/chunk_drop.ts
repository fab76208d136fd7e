/** The lab *Chunk drop*: one turn cut at a token, for a client that asks again and for one that resumes. */

import { h, say } from '../dom.js';
import { BadNetwork, type Fault } from '../network.js';
import { type Count, Counter } from './counting.js';
import { askNaively } from './naive.js';
import type { Parts } from './parts.js';

const PROMPT = 'Open a ticket and charge me 19 dollars rate=25 silence=1 words=60';
const [FIRST_CUT, LAST_CUT, USUAL_CUT] = [2, 60, 24];

const REFRESH_MS = 400;
/** Nobody stopped the turn that was left: it gets so long to end by itself. */
const LINGER_MS = 4000;

interface Side {
  readonly element: HTMLElement;
  readonly text: HTMLElement;
  readonly note: HTMLElement;
  words(shown: number): void;
  count(count: Count): void;
}

/** Return the lab's section. */
export function chunkDropLab(parts: Parts): HTMLElement {
  const naive = side('Sends the prompt again', parts);
  const ours = side('agent-turns-client', parts);
  const cut = h('input', {
    type: 'range',
    id: 'cut-at',
    min: String(FIRST_CUT),
    max: String(LAST_CUT),
    value: String(USUAL_CUT),
  });
  const label = h('label', { class: 'label', for: 'cut-at' });
  const tell = () => say(label, `Cut the connection at token ${cut.value}`);
  cut.addEventListener('input', tell);
  tell();
  const outcome = h('p', { class: 'outcome', role: 'status' });
  const run = h('button', { type: 'button', class: 'primary', id: 'run-chunk-drop' }, 'Run both');
  run.addEventListener('click', async () => {
    run.disabled = true;
    try {
      await compare(parts, Number(cut.value), naive, ours, (words) => say(outcome, words));
    } catch (error) {
      say(outcome, `The lab could not be run: ${(error as Error).message}`);
    }
    run.disabled = false;
  });
  return h(
    'section',
    { class: 'lab', id: 'lab-chunk-drop', 'aria-labelledby': 'chunk-drop-title' },
    h('h2', { id: 'chunk-drop-title' }, 'Chunk drop'),
    h(
      'p',
      {},
      'The same prompt, to the same functions, over a connection that breaks at one token. It opens a ' +
        'ticket and charges 19 dollars: count how often.',
    ),
    h('div', { class: 'controls' }, h('div', {}, label, cut), run),
    h('div', { class: 'sides' }, naive.element, ours.element),
    outcome,
  );
}

/** One after the other, so that the counts tell whose effects they are. */
async function compare(
  parts: Parts,
  cutAt: number,
  naive: Side,
  ours: Side,
  tell: (words: string) => void,
): Promise<void> {
  for (const each of [naive, ours]) {
    each.text.replaceChildren();
    each.words(0);
    each.count({ tickets: 0, charges: parts.control ? 0 : null });
    say(each.note, '');
  }
  tell('The client that sends the prompt again …');
  const harm = await counted(parts, naive, (counter) => runNaive(parts, cutAt, naive, counter));
  tell('The client that resumes …');
  const good = await counted(parts, ours, (counter) => runOurs(parts, cutAt, ours, counter));
  tell(`Sent again: ${countWords(harm)}. Resumed: ${countWords(good)}.`);
}

/** Run one side and show its effects as they take place; resolve with what they came to. */
async function counted(
  parts: Parts,
  side: Side,
  run: (counter: Counter) => Promise<void>,
): Promise<Count> {
  const counter = new Counter(parts.control);
  await counter.begin();
  const show = async () => side.count(await counter.count());
  const timer = setInterval(() => void show().catch(() => {}), REFRESH_MS);
  try {
    await run(counter);
  } finally {
    clearInterval(timer);
  }
  const count = await counter.count();
  side.count(count);
  return count;
}

async function runNaive(parts: Parts, cutAt: number, into: Side, counter: Counter): Promise<void> {
  let [words, last] = [0, 1];
  const onText = (piece: string, attempt: number) => {
    if (attempt > last) into.text.append(cutMark('✂ cut, sent again '));
    last = attempt;
    words += countWordsOf(piece);
    into.text.append(attempt > 1 ? h('span', { class: 'again' }, piece) : piece);
    into.text.scrollTop = into.text.scrollHeight;
    into.words(words);
  };
  const network = new BadNetwork();
  network.fault = cutOnce(cutAt);
  const run = { onText, onTool: (tool: string) => counter.tell(tool) };
  await askNaively(PROMPT, parts, network.fetch, run);
  say(into.note, `${last} turns`);
  if (parts.control) await new Promise((resolve) => setTimeout(resolve, LINGER_MS));
}

async function runOurs(parts: Parts, cutAt: number, into: Side, counter: Counter): Promise<void> {
  const network = new BadNetwork();
  network.fault = cutOnce(cutAt);
  let cutLength = -1;
  const client = parts.client(network.fetch, (entry) => {
    if (entry.kind === 'dropped' && cutLength < 0) cutLength = handle.save().state.text.length;
    if (
      entry.kind === 'event' &&
      entry.event.type === 'tool_end' &&
      entry.event.data.status === 'ok'
    ) {
      counter.tell(entry.event.data.tool);
    }
  });
  const handle = client.start({ prompt: PROMPT });
  handle.subscribe(() => {
    const { text } = handle.getSnapshot();
    if (cutLength < 0) into.text.replaceChildren(text);
    else {
      const mark = cutMark('✂ cut, resumed ', 'fine');
      into.text.replaceChildren(text.slice(0, cutLength), mark, text.slice(cutLength));
    }
    into.text.scrollTop = into.text.scrollHeight;
    into.words(countWordsOf(text));
  });
  const view = await handle.finished;
  // Given up, it would be tried again whenever the page is looked at.
  handle.close();
  if (view.status !== 'done') throw new Error(view.error?.message ?? view.status);
  const again = view.connection.attempt - 1;
  say(into.note, `1 turn, ${again} reconnect${again === 1 ? '' : 's'}`);
}

/** Cut the first connection when the frame of that token has come. */
function cutOnce(token: number): () => Fault {
  let used = false;
  return () => {
    if (used) return () => 'pass';
    used = true;
    let seen = 0;
    const decoder = new TextDecoder();
    return (piece) => {
      if (seen >= token) return 'cut';
      seen += decoder.decode(piece, { stream: true }).split('event: token\n').length - 1;
      return 'pass';
    };
  };
}

function side(title: string, parts: Parts): Side {
  const text = h('div', {
    class: 'text',
    tabindex: '0',
    role: 'group',
    'aria-label': `${title}: the answer`,
  });
  const note = h('p');
  const [words, tickets, charges] = [h('dd'), h('dd'), h('dd')];
  const figures = h(
    'dl',
    { class: 'figures' },
    h('div', {}, h('dt', {}, 'words shown'), words),
    h('div', {}, h('dt', {}, parts.control ? 'tickets in Firestore' : 'tickets opened'), tickets),
    h(
      'div',
      {},
      h('dt', {}, parts.control ? 'charges, at the payment server' : 'charges (local only)'),
      charges,
    ),
  );
  const heading = h('header', {}, h('h3', {}, title), note);
  const put = (where: HTMLElement, value: number | null) => {
    say(where, value === null ? '–' : String(value));
    where.className = value === 1 ? 'good' : value !== null && value > 1 ? 'bad' : '';
  };
  return {
    element: h('article', { class: 'side' }, heading, text, figures),
    text,
    note,
    words: (shown) => say(words, String(shown)),
    count: (count) => {
      put(tickets, count.tickets);
      put(charges, count.charges);
    },
  };
}

function cutMark(words: string, style = ''): HTMLElement {
  return h('span', { class: `cut-here ${style}` }, ` ${words}`);
}

function countWordsOf(text: string): number {
  return text.match(/\S+/g)?.length ?? 0;
}

function countWords({ tickets, charges }: Count): string {
  return [times(tickets, 'ticket'), ...(charges === null ? [] : [times(charges, 'charge')])].join(
    ', ',
  );
}

function times(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? '' : 's'}`;
}
