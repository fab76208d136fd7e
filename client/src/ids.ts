/**
 * Return a fresh, unguessable turn id: 128 random bits in hexadecimal digits. Not made by
 * `crypto.randomUUID`, which pages on plain http lack.
 */
export function newTurnId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
