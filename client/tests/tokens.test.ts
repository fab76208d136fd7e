/** Tokens of the Firebase SDK, as far as this package knows it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firebaseTokens } from '../src/firebase.js';

const appCheck = async () => ({ token: 'limited-use' });

test('the user of an earlier visit is waited for, and a refused token is not given again', async () => {
  const asked: (boolean | undefined)[] = [];
  const auth = {
    currentUser: null as { getIdToken(force?: boolean): Promise<string> } | null,
    authStateReady: async () => {
      auth.currentUser = {
        getIdToken: async (force) => {
          asked.push(force);
          return `id-${asked.length}`;
        },
      };
    },
  };
  const tokens = firebaseTokens(appCheck, auth);
  assert.equal(await tokens.appCheck(), 'limited-use');
  assert.equal(await tokens.idToken(false), 'id-1');
  assert.equal(await tokens.idToken(true), 'id-2');
  assert.deepEqual(asked, [false, true]);
});

test('nobody signed in, or no Auth at all, is no ID token', async () => {
  assert.equal(await firebaseTokens(appCheck).idToken(true), null);
  assert.equal(await firebaseTokens(appCheck, { currentUser: null }).idToken(false), null);
});
