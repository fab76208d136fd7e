/** Who the page is to the functions: a guest of Firebase Auth, in a genuine app. */

import type { Tokens } from 'agent-turns-client';
import { emulatorAppCheck } from 'agent-turns-client/emulator';
import { firebaseTokens } from 'agent-turns-client/firebase';
import { initializeApp } from 'firebase/app';
import {
  type Auth,
  connectAuthEmulator,
  indexedDBLocalPersistence,
  initializeAuth,
  signInAnonymously,
  signOut,
} from 'firebase/auth';
import { type Site, SiteProblem } from './site.js';

export interface Identity {
  readonly tokens: Tokens;
  readonly uid: string;
  /** Sign this guest out; the page loads anew as another. */
  leave(): Promise<void>;
}

/** Sign in as the guest of the last visit, or as a new one. */
export async function signIn(site: Site): Promise<Identity> {
  const app = initializeApp(site.firebase);
  // Before Auth, which then sends App Check's tokens: where it demands them, it forgets its user without.
  const appCheck = site.local ? emulatorAppCheck(site.project) : await realAppCheck(site, app);
  const auth = initializeAuth(app, { persistence: indexedDBLocalPersistence });
  if (site.local) connectAuthEmulator(auth, site.local.auth, { disableWarnings: true });
  const uid = await guest(site, auth);
  // Signed out, here or in another tab: nothing on the page is this guest's any more.
  auth.onAuthStateChanged((user) => user?.uid === uid || location.reload());
  return {
    tokens: firebaseTokens(appCheck, auth),
    uid,
    leave: () => signOut(auth),
  };
}

async function guest(site: Site, auth: Auth): Promise<string> {
  await auth.authStateReady();
  if (site.local) await forgetUnknownGuest(auth);
  return (auth.currentUser ?? (await signInAnonymously(auth)).user).uid;
}

/** The Auth emulator forgets its users when it ends, and the browser does not. */
async function forgetUnknownGuest(auth: Auth): Promise<void> {
  try {
    await auth.currentUser?.getIdToken(true);
  } catch (error) {
    if ((error as { code?: string }).code === 'auth/network-request-failed') throw error;
    await signOut(auth);
  }
}

/** reCAPTCHA Enterprise; every call gets a token that is good for it alone. */
async function realAppCheck(site: Site, app: ReturnType<typeof initializeApp>) {
  if (!site.siteKey) {
    throw new SiteProblem(
      'Set `recaptchaEnterpriseSiteKey` in public/config.json, and deploy again.',
    );
  }
  const { initializeAppCheck, getLimitedUseToken, ReCaptchaEnterpriseProvider } = await import(
    'firebase/app-check'
  );
  const provider = new ReCaptchaEnterpriseProvider(site.siteKey);
  const appCheck = initializeAppCheck(app, { provider, isTokenAutoRefreshEnabled: false });
  return () => getLimitedUseToken(appCheck);
}
