/**
 * Return a fresh, unguessable turn id: a random UUID. Works on plain http too, where
 * `crypto.randomUUID` is absent.
 */
export function newTurnId(): string {
  return (
    crypto.randomUUID?.() ??
    // Each digit is random; that of the variant, 8, keeps its upper two bits.
    '00000000-0000-4000-8000-000000000000'.replace(/[08]/g, (digit) => {
      const [byte = 0] = crypto.getRandomValues(new Uint8Array(1));
      return (digit === '0' ? byte & 15 : 8 | (byte & 3)).toString(16);
    })
  );
}
