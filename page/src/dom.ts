/** Making and finding elements, in two functions. */

type Child = Node | string | null;

/** Make an element; `class`, `data-…` and the like are attributes, functions are listeners. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | boolean | ((event: Event) => void)>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (typeof value === 'boolean') element.toggleAttribute(name, value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Return the page's element of that id, of that kind; throws if `index.html` has none. */
export function the<T extends Element = HTMLElement>(
  id: string,
  kind: new () => T = HTMLElement as unknown as new () => T,
): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`index.html lacks #${id}`);
  return found;
}

/** Put words into an element, if they are new. */
export function say(element: Element, words: string): void {
  if (element.textContent !== words) element.textContent = words;
}
