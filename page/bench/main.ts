/**
 * What `python -m dev.bench.client` runs in Chromium: the page's own bubble over the real client,
 * beside a page that renders at every token; and parsers, without a network.
 */

import { TurnClient } from 'agent-turns-client';
import { createParser } from 'eventsource-parser';
import { Bubble } from '../src/bubble.js';
import { h } from '../src/dom.js';

/** Figures of one stream. Times in ms, sizes in bytes. */
interface Figures {
  readonly ms: number;
  readonly frames: number;
  /** Updates of the page's text. */
  readonly paints: number;
  /** Of over 50 ms, as the browser counts them. */
  readonly longTasks: number;
  readonly longestMs: number;
  readonly peakHeap: number;
  readonly characters: number;
  readonly finished: boolean;
}

/** The clock ticks so often. */
const CLOCK_MS = 0.1;

const scroll = h('div', { class: 'scroll', style: 'height: 100vh' });
document.body.replaceChildren(scroll);

/** Read `/start_turn` by the client and show it by the page's bubble, as the chat does. */
async function ours(prompt: string, limitMs: number): Promise<Figures> {
  const client = new TurnClient({
    functions: location.origin,
    tokens: { appCheck: async () => 'none', idToken: async () => null },
  });
  const handle = client.start({ prompt });
  const bubble = new Bubble(handle);
  scroll.replaceChildren(bubble.element);
  let paints = 0;
  handle.subscribe(() => {
    paints += 1;
    bubble.show(handle.getSnapshot());
    scroll.scrollTop = scroll.scrollHeight;
  });
  return measure(
    limitMs,
    handle.finished.then(() => {}),
    () => paints,
    () => handle.getSnapshot().text.length,
  );
}

/** The page that most tutorials end with: every token sets the state, every state is rendered. */
async function naive(prompt: string, limitMs: number): Promise<Figures> {
  const text = h('div', { class: 'answer', style: 'white-space: pre-wrap' });
  scroll.replaceChildren(text);
  let answer = '';
  let paints = 0;
  const giveUp = performance.now() + limitMs;
  const read = async () => {
    const response = await fetch('/start_turn', {
      method: 'POST',
      body: JSON.stringify({ prompt }),
    });
    if (!response.body) return;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let buffer = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += decoder.decode(value, { stream: true });
      for (let found = FRAME.exec(buffer); found; found = FRAME.exec(buffer)) {
        buffer = buffer.slice(found[0].length);
        const [, type, data] = found;
        if (type !== 'token' || !data) continue;
        answer += JSON.parse(data) as string;
        text.textContent = answer;
        scroll.scrollTop = scroll.scrollHeight;
        paints += 1;
        if (performance.now() > giveUp) await new Promise(() => {});
      }
    }
  };
  return measure(
    limitMs,
    read(),
    () => paints,
    () => answer.length,
  );
}

const FRAME = /^(?:id: .*\n)?(?:event: (.*)\n)?(?:data: (.*)\n)?(?::.*\n)?\n/;

async function measure(
  limitMs: number,
  finished: Promise<void>,
  paints: () => number,
  characters: () => number,
): Promise<Figures> {
  let [frames, longTasks, longestMs, peakHeap, running] = [0, 0, 0, 0, true];
  const heap = () =>
    (performance as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? 0;
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      longTasks += 1;
      longestMs = Math.max(longestMs, entry.duration);
    }
  });
  observer.observe({ type: 'longtask' });
  const frame = () => {
    frames += 1;
    peakHeap = Math.max(peakHeap, heap());
    if (running) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  const began = performance.now();
  const limit = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), limitMs));
  const done = await Promise.race([finished.then(() => true), limit]);
  const ms = performance.now() - began;
  running = false;
  await new Promise((resolve) => setTimeout(resolve, 100)); // the browser tells of long tasks late
  observer.disconnect();
  return {
    ms,
    frames,
    paints: paints(),
    longTasks,
    longestMs,
    peakHeap,
    characters: characters(),
    finished: done,
  };
}

/** Feed one frame of so many bytes in pieces of 1 KB; return the ms that each way takes. */
function parse(bytes: number): { ours: number; regex: number } {
  const frame = `id: 1\nevent: token\ndata: ${JSON.stringify('x'.repeat(bytes))}\n\n`;
  const pieces: string[] = [];
  for (let from = 0; from < frame.length; from += 1024) pieces.push(frame.slice(from, from + 1024));
  let events = 0;
  const timed = (feed: () => void) => {
    const began = performance.now();
    feed();
    return Math.max(CLOCK_MS, performance.now() - began);
  };
  const feed = () => {
    const parser = createParser({ onEvent: () => (events += 1) });
    for (const piece of pieces) parser.feed(piece);
  };
  const byParser = Math.min(timed(feed), timed(feed), timed(feed));
  const byRegex = timed(() => {
    let buffer = '';
    for (const piece of pieces) {
      buffer += piece;
      for (let found = FRAME.exec(buffer); found; found = FRAME.exec(buffer)) {
        buffer = buffer.slice(found[0].length);
        events += 1;
      }
    }
  });
  if (events !== 4) throw new Error(`${events} events instead of 4`);
  return { ours: byParser, regex: byRegex };
}

/** Read a turn of so many bytes of token frames, all there at once; return the ms it takes. */
async function consume(bytes: number): Promise<number> {
  const lines: string[] = [];
  let size = 0;
  for (let id = 1; size < bytes; id += 1) {
    lines.push(`id: ${id}\nevent: token\ndata: " word ${id}"\n\n`);
    size += lines.at(-1)?.length ?? 0;
  }
  lines.push(`id: ${lines.length + 1}\nevent: done\ndata: {"reason":"stop"}\n\n`);
  const body = new TextEncoder().encode(lines.join(''));
  const client = new TurnClient({
    functions: location.origin,
    tokens: { appCheck: async () => 'none', idToken: async () => null },
    fetch: async () =>
      new Response(
        new ReadableStream({
          start(controller) {
            for (let from = 0; from < body.length; from += 1024)
              controller.enqueue(body.subarray(from, from + 1024));
            controller.close();
          },
        }),
        { headers: { 'Content-Type': 'text/event-stream' } },
      ),
  });
  const began = performance.now();
  const view = await client.start({ prompt: 'All at once' }).finished;
  if (view.status !== 'done' || view.cursor !== lines.length) throw new Error(view.status);
  return performance.now() - began;
}

Object.assign(window, { bench: { ours, naive, parse, consume } });
