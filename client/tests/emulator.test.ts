/** Local tokens say what the functions' local stand-in asks of them: docs/PROTOCOL.md. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emulatorAppCheck, emulatorTokens } from '../src/emulator.js';

function claimsOf(token: string | null) {
  const [header, payload, signature] = (token ?? '').split('.');
  const read = (part = '') => JSON.parse(Buffer.from(part, 'base64url').toString());
  assert.deepEqual([read(header), signature], [{ alg: 'none', typ: 'JWT' }, '']);
  return read(payload);
}

test('an App Check token is of the project, good for minutes, and another one each time', async () => {
  const appCheck = emulatorAppCheck('demo-shop');
  const [one, two] = [claimsOf((await appCheck()).token), claimsOf((await appCheck()).token)];
  assert.deepEqual(one.aud, ['projects/demo-shop']);
  assert.equal(one.exp - one.iat, 300);
  assert.notEqual(one.jti, two.jti);
});

test('an ID token is of the user, whatever characters the name has; without one there is none', async () => {
  const tokens = emulatorTokens('demo-shop', 'Ada ✓');
  assert.equal(claimsOf(await tokens.idToken(false)).sub, 'Ada ✓');
  assert.equal(claimsOf(await tokens.appCheck()).sub, '1:000000000000:web:local');
  assert.equal(await emulatorTokens('demo-shop').idToken(true), null);
});
