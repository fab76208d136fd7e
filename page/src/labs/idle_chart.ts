/** The picture of the lab *Idle timeout*: two lanes of a connection, drawn while they live. */

import { h } from '../dom.js';

const [LANE, TOP, LEFT] = [64, 8, 8];
/** Until the picture is laid out. */
const USUAL_WIDTH = 720;
const LANES = ['Keep-alives count', 'Keep-alives do not count'];
const REDRAW_MS = 100;
/** Half a label of the axis: a nearer one to the edge would be cut off. */
const ROOM_FOR_TICK = 20;

type Mark = { readonly kind: 'open' | 'cut' | 'close' | 'event' | 'ping'; readonly at: number };

/** What is told of one connection, when it happens. */
export type Lane = Readonly<Record<Mark['kind'], () => void>>;

export class IdleChart {
  readonly element: HTMLElement;
  readonly #svg = svg('svg', { role: 'img', 'aria-label': 'Two connections over time' });
  #marks: Mark[][] = [[], []];
  #begun = 0;
  #ended: number | null = null;
  #expected = 30;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor() {
    this.element = h('figure', { class: 'chart' }, this.#svg as unknown as Node, legend());
    this.#draw();
    // Drawn as wide as it is shown, so that its words are as large on a phone.
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  /** Begin a new picture, of about so many seconds. Its clock starts when a connection opens. */
  begin(seconds: number): void {
    this.#marks = [[], []];
    [this.#begun, this.#ended, this.#expected] = [0, null, seconds];
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#draw(), REDRAW_MS);
  }

  /** Stop the clock. */
  end(): void {
    this.#ended = this.#now();
    clearInterval(this.#timer);
    this.#draw();
  }

  /** Return what one lane is told by. */
  lane(index: number): Lane {
    const note = (kind: Mark['kind']) => () => {
      this.#begun ||= performance.now();
      const marks = this.#marks[index];
      const last = marks?.at(-1);
      // A hundred tokens a second are one line on paper.
      if (kind === 'event' && last?.kind === 'event' && this.#now() - last.at < 0.15) return;
      marks?.push({ kind, at: this.#now() });
    };
    return {
      open: note('open'),
      cut: note('cut'),
      close: note('close'),
      event: note('event'),
      ping: note('ping'),
    };
  }

  #now(): number {
    return this.#begun > 0 ? (performance.now() - this.#begun) / 1000 : 0;
  }

  #draw(): void {
    const now = this.#ended ?? this.#now();
    const span = Math.max(this.#expected, now * 1.02);
    const width = this.#svg.clientWidth || USUAL_WIDTH;
    const x = (seconds: number) => LEFT + (seconds / span) * (width - 2 * LEFT);
    const height = TOP + LANES.length * LANE + 22;
    this.#svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    const parts: SVGElement[] = [];
    for (let second = 0; second <= span; second += span > 40 ? 10 : 5) {
      parts.push(line('axis', x(second), TOP + 20, x(second), height - 20));
      const anchor = second === 0 ? 'start' : x(second) > width - ROOM_FOR_TICK ? 'end' : 'middle';
      parts.push(text('tick', `${second} s`, x(second), height - 6, anchor));
    }
    for (const [index, name] of LANES.entries()) {
      const top = TOP + index * LANE;
      parts.push(text('row', name, LEFT, top + 14, 'start'));
      parts.push(...lane(this.#marks[index] ?? [], now, x, top + 24));
    }
    this.#svg.replaceChildren(...parts);
  }
}

function lane(
  marks: readonly Mark[],
  now: number,
  x: (s: number) => number,
  top: number,
): SVGElement[] {
  const bars: SVGElement[] = [];
  const over: SVGElement[] = [];
  let openAt: number | null = null;
  const bar = (until: number) => {
    if (openAt === null) return;
    const width = Math.max(1, x(until) - x(openAt));
    bars.push(svg('rect', { class: 'open', x: x(openAt), y: top, width, height: 24, rx: 3 }));
    openAt = null;
  };
  for (const { kind, at } of marks) {
    if (kind === 'open') openAt = at;
    else if (kind === 'event') over.push(line('event', x(at), top + 4, x(at), top + 20));
    else if (kind === 'ping')
      over.push(svg('circle', { class: 'keep', cx: x(at), cy: top + 12, r: 2.5 }));
    else {
      bar(at);
      if (kind === 'cut') over.push(cross(x(at), top + 12));
    }
  }
  bar(now);
  return [...bars, ...over];
}

function legend(): HTMLElement {
  const key = (mark: SVGElement, words: string) => {
    const box = svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' });
    box.append(mark);
    return h('span', {}, box as unknown as Node, words);
  };
  return h(
    'figcaption',
    { class: 'legend' },
    key(svg('rect', { class: 'open', x: 1, y: 3, width: 14, height: 10, rx: 2 }), 'connected'),
    key(line('event', 8, 2, 8, 14), 'event'),
    key(svg('circle', { class: 'keep', cx: 8, cy: 8, r: 3 }), 'keep-alive'),
    key(cross(8, 8), 'cut by the proxy'),
  );
}

function cross(x: number, y: number): SVGElement {
  return svg('path', { class: 'dropped', d: `M${x - 5},${y - 5}l10,10m0,-10l-10,10` });
}

function line(style: string, x1: number, y1: number, x2: number, y2: number): SVGElement {
  return svg('line', { class: style, x1, y1, x2, y2 });
}

function text(style: string, words: string, x: number, y: number, anchor: string): SVGElement {
  const element = svg('text', { class: style, x, y, 'text-anchor': anchor });
  element.textContent = words;
  return element;
}

function svg(name: string, attributes: Readonly<Record<string, string | number>>): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
