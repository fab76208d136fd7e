/**
 * Return a fresh, unguessable turn id: a random UUID. Works on plain http too, where
 * `crypto.randomUUID` is absent.
 */
export declare function newTurnId(): string;
