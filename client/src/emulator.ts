/**
 * Tokens for the Emulator Suite, which has no App Check: unsigned, as the Auth emulator's are. The
 * functions take them there alone, and only under a project id that begins with `demo-`.
 *
 * @packageDocumentation
 */

import type { GetLimitedUseToken } from './firebase.js';
import { newTurnId } from './ids.js';
import type { Tokens } from './options.js';

const APP = '1:000000000000:web:local';
const APP_CHECK_SECONDS = 300;
const ID_SECONDS = 3_600;

/**
 * Return what stands in for `getLimitedUseToken`, for `firebaseTokens` beside the Auth emulator:
 * `firebaseTokens(emulatorAppCheck('demo-shop'), auth)`.
 *
 * @param project - the id that the suite runs under
 */
export function emulatorAppCheck(project: string): GetLimitedUseToken {
  return async () => ({
    token: unsigned({
      iss: `https://firebaseappcheck.googleapis.com/${project}`,
      aud: [`projects/${project}`],
      sub: APP,
      jti: newTurnId(),
      ...lasting(APP_CHECK_SECONDS),
    }),
  });
}

/**
 * Return tokens of a user of one's choice, without the Firebase SDK: for scripts and tests.
 *
 * @param uid - left out for a call without a user (`REQUIRE_AUTH=false`)
 */
export function emulatorTokens(project: string, uid?: string): Tokens {
  const appCheck = emulatorAppCheck(project);
  return {
    appCheck: async () => (await appCheck()).token,
    idToken: async () => (uid === undefined ? null : idToken(project, uid)),
  };
}

function idToken(project: string, uid: string): string {
  const time = lasting(ID_SECONDS);
  return unsigned({
    iss: `https://securetoken.google.com/${project}`,
    aud: project,
    sub: uid,
    user_id: uid,
    auth_time: time.iat,
    provider_id: 'anonymous',
    firebase: { identities: {}, sign_in_provider: 'anonymous' },
    ...time,
  });
}

function lasting(seconds: number): { iat: number; exp: number } {
  const iat = Math.floor(Date.now() / 1_000);
  return { iat, exp: iat + seconds };
}

/** A JWT without a signature: its third part is empty. */
function unsigned(claims: object): string {
  return `${part({ alg: 'none', typ: 'JWT' })}.${part(claims)}.`;
}

function part(value: object): string {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
