/** A page on the Emulator Suite: local App Check tokens, and users of the Auth emulator. */

import { TurnClient } from 'agent-turns-client';
import { emulatorAppCheck } from 'agent-turns-client/emulator';
import { type AuthLike, firebaseTokens } from 'agent-turns-client/firebase';

// Of `firebase/auth`:
declare function getAuth(): AuthLike;
declare function connectAuthEmulator(auth: AuthLike, url: string): void;

const auth = getAuth();
connectAuthEmulator(auth, 'http://127.0.0.1:9099');
export const client = new TurnClient({
  functions: 'http://127.0.0.1:5001/demo-agent-turns/us-central1',
  tokens: firebaseTokens(emulatorAppCheck('demo-agent-turns'), auth),
});
