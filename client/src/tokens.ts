import type { Tokens } from './options.js';

/** Firebase App Check, as far as this package needs it: `getLimitedUseToken` of `firebase/app-check`. */
export type GetLimitedUseToken = () => Promise<{ readonly token: string }>;

/** Firebase Auth, as far as this package needs it: what `getAuth` of `firebase/auth` returns. */
export interface AuthLike {
  readonly currentUser: { getIdToken(forceRefresh?: boolean): Promise<string> } | null;
  /** Resolves when a user of an earlier visit was found. */
  authStateReady?(): Promise<void>;
}

/**
 * Return tokens of the Firebase SDK:
 * `firebaseTokens(() => getLimitedUseToken(appCheck), getAuth(app))`.
 */
export declare function firebaseTokens(appCheck: GetLimitedUseToken, auth?: AuthLike): Tokens;
