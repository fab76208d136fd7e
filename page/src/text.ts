/** Text that grows: each paint touches the last line only, however long the text is. */

/** Shows a text in an element, a block for each line. */
export class GrowingText {
  #text = '';
  readonly #lines: { readonly block: HTMLElement; readonly node: Text; readonly start: number }[] =
    [];

  constructor(readonly element: HTMLElement) {}

  /** Show that text. Cheap if it is the last one with more at its end. */
  show(text: string): void {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#cut(commonLength(this.#text, text));
    let from = this.#text.length;
    while (from < text.length) {
      const newline = text.indexOf('\n', from);
      const end = newline === -1 ? text.length : newline + 1;
      this.#append(text.slice(from, newline === -1 ? end : newline), from, newline !== -1);
      from = end;
    }
    this.#text = text;
  }

  #append(words: string, at: number, closes: boolean): void {
    let last = this.#lines.at(-1);
    if (!last || this.#closed) {
      const block = document.createElement('div');
      const node = document.createTextNode('');
      block.append(node);
      this.element.append(block);
      last = { block, node, start: at };
      this.#lines.push(last);
    }
    if (words) last.node.appendData(words);
    this.#closed = closes;
  }
  #closed = false;

  #cut(length: number): void {
    for (;;) {
      const last = this.#lines.at(-1);
      if (!last || last.start < length) break;
      last.block.remove();
      this.#lines.pop();
    }
    const last = this.#lines.at(-1);
    if (last && length - last.start < last.node.length) {
      last.node.data = last.node.data.slice(0, length - last.start);
    }
    this.#text = this.#text.slice(0, length);
    this.#closed = this.#text.endsWith('\n');
  }
}

function commonLength(one: string, other: string): number {
  const most = Math.min(one.length, other.length);
  let low = 0;
  let high = most;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (one.startsWith(other.slice(0, middle))) low = middle;
    else high = middle - 1;
  }
  return low;
}
