/**
 * Return a fresh, unguessable turn id: 128 random bits. Not made by `crypto.randomUUID`, which pages
 * on plain http lack.
 */
export function newTurnId(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join('-');
}
