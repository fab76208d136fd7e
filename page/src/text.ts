/** Text that grows: each paint touches its last block only, however long the text is. */

/** Lines are gathered in blocks of about so many characters, which end at a newline. */
const BLOCK_LENGTH = 1500;

interface Block {
  readonly element: HTMLElement;
  readonly node: Text;
  /** Where in the text it begins. */
  readonly start: number;
  /** It has all its lines; the newline at its end is left out, as the next block is a new line. */
  closed: boolean;
}

/** Shows a text in an element that keeps newlines. */
export class GrowingText {
  #text = '';
  readonly #blocks: Block[] = [];

  constructor(readonly element: HTMLElement) {}

  /** Show that text. Cheap if it is the last one with more at its end. */
  show(text: string): void {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#cut(commonLength(this.#text, text));
    for (let from = this.#text.length; from < text.length; ) {
      const block = this.#open(from);
      const newline = text.indexOf('\n', Math.max(from, block.start + BLOCK_LENGTH));
      const end = newline === -1 ? text.length : newline;
      block.node.appendData(text.slice(from, end));
      block.closed = newline !== -1;
      from = block.closed ? end + 1 : end;
    }
    this.#text = text;
  }

  /** The last block if it takes more, else a new one that begins there. */
  #open(start: number): Block {
    const last = this.#blocks.at(-1);
    if (last && !last.closed) return last;
    const element = document.createElement('div');
    const node = document.createTextNode('');
    element.append(node);
    this.element.append(element);
    const block = { element, node, start, closed: false };
    this.#blocks.push(block);
    return block;
  }

  #cut(length: number): void {
    this.#text = this.#text.slice(0, length);
    for (let last = this.#blocks.at(-1); last && last.start >= length; last = this.#blocks.at(-1)) {
      last.element.remove();
      this.#blocks.pop();
    }
    const last = this.#blocks.at(-1);
    if (!last) return;
    const left = length - last.start;
    last.closed = last.closed && left > last.node.length;
    if (left < last.node.length) last.node.data = last.node.data.slice(0, left);
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
