/** The frame-rate meter: frames the page draws, and paints of text among them, in each second. */

import { say } from './dom.js';

const HISTORY = 30;

export class Meter {
  #paints = 0;
  readonly #rates: number[] = [];
  readonly #rate: Element;
  readonly #painted: Element;
  readonly #line: Element;

  constructor(element: HTMLElement) {
    const [rate, painted, line] = ['.rate', '.painted', 'path'].map((part) =>
      element.querySelector(part),
    );
    if (!rate || !painted || !line) throw new Error('index.html lacks a part of the meter');
    [this.#rate, this.#painted, this.#line] = [rate, painted, line];
    this.#run();
  }

  /** A turn was painted. */
  painted(): void {
    this.#paints += 1;
  }

  #run(): void {
    let frames = 0;
    let since = performance.now();
    const frame = (now: number) => {
      frames += 1;
      if (now - since >= 1000) {
        this.#show((frames * 1000) / (now - since), this.#paints);
        [frames, this.#paints, since] = [0, 0, now];
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    document.addEventListener('visibilitychange', () => {
      [frames, this.#paints, since] = [0, 0, performance.now()];
    });
  }

  #show(rate: number, paints: number): void {
    this.#rates.push(rate);
    if (this.#rates.length > HISTORY) this.#rates.shift();
    const ceiling = Math.max(60, ...this.#rates);
    const points = this.#rates.map(
      (each, index) => `${(index * 60) / (HISTORY - 1)},${19 - (18 * each) / ceiling}`,
    );
    this.#line.setAttribute('d', `M${points.join('L')}`);
    say(this.#rate, `${rate.toFixed(0)} fps`);
    say(this.#painted, `${paints} paints/s`);
  }
}
