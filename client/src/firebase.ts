import type { Tokens } from './options.js';

/** Firebase App Check, as far as this package needs it: `getLimitedUseToken` of `firebase/app-check`. */
export type GetLimitedUseToken = () => Promise<{ readonly token: string }>;

/** Firebase Auth, as far as this package needs it: what `getAuth` of `firebase/auth` returns. */
export interface AuthLike {
  readonly currentUser: { getIdToken(forceRefresh?: boolean): Promise<string> } | null;
  /** Resolves when a user of an earlier visit was looked for. */
  authStateReady?(): Promise<void>;
}

/**
 * Return tokens of the Firebase SDK:
 * `firebaseTokens(() => getLimitedUseToken(appCheck), getAuth(app))`.
 *
 * @param appCheck - returns a limited-use token: a fresh one at each call
 * @param auth - left out where the functions need no user (`REQUIRE_AUTH=false`)
 */
export function firebaseTokens(appCheck: GetLimitedUseToken, auth?: AuthLike): Tokens {
  return {
    appCheck: async () => (await appCheck()).token,
    idToken: async (refresh) => {
      await auth?.authStateReady?.();
      return (await auth?.currentUser?.getIdToken(refresh)) ?? null;
    },
  };
}
