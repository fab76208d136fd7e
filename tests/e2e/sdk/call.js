// An app of the official Firebase JS SDK, without a browser: initializeAppCheck with a CustomProvider,
// Auth against its emulator, and plain fetch with what the SDK gives. Prints one line of JSON.
//
// Arguments, as JSON: {functions, auth, project, turn}.

import { randomUUID } from "node:crypto";

import { initializeApp } from "firebase/app";
import { CustomProvider, getLimitedUseToken, initializeAppCheck } from "firebase/app-check";
import {
  connectAuthEmulator,
  createUserWithEmailAndPassword,
  getAuth,
  signInAnonymously,
  signInWithEmailAndPassword,
  signOut,
} from "firebase/auth";

const { functions, auth: authUrl, project, turn } = JSON.parse(process.argv[2]);
const APP_ID = "1:123456789:web:sdk";

const app = initializeApp({ projectId: project, apiKey: "local", appId: APP_ID });
const provider = new CustomProvider({ getToken: async () => localToken() });
const appCheck = initializeAppCheck(app, { provider, isTokenAutoRefreshEnabled: false });
const auth = getAuth(app);
connectAuthEmulator(auth, authUrl, { disableWarnings: true });

const said = {};
said.withoutUser = await call("resume_turn");

await signInAnonymously(auth);
said.anonymousUid = auth.currentUser.uid;
said.start = await call("start_turn", { prompt: "Tell me about leases words=12 silence=0" });
said.resume = await call("resume_turn");
said.cancel = await call("cancel_turn", null, "POST");

const used = await headers();
await call("resume_turn", null, "GET", used);
said.sameTokenTwice = await call("resume_turn", null, "GET", used);

await signOut(auth);
const email = `${randomUUID()}@example.com`;
await createUserWithEmailAndPassword(auth, email, "correct horse");
await signOut(auth);
await signInWithEmailAndPassword(auth, email, "correct horse");
said.passwordUid = auth.currentUser.uid;
said.othersTurn = await call("resume_turn");
said.ownTurnOfThatName = await call("start_turn", { prompt: "Mine words=3 silence=0" });

console.log(JSON.stringify(said));
process.exit(0);

/** The local stand-in's token, as the SDK wants it from a provider: unsigned, good for one call. */
function localToken() {
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: `https://firebaseappcheck.googleapis.com/${project}`,
    aud: [`projects/${project}`],
    sub: APP_ID,
    iat: now,
    exp: now + 300,
    jti: randomUUID(),
  };
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const token = `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.`;
  return { token, expireTimeMillis: (now + 300) * 1000 };
}

async function headers() {
  const { token } = await getLimitedUseToken(appCheck);
  const idToken = await auth.currentUser?.getIdToken();
  return {
    "X-Firebase-AppCheck": token,
    "X-Stream-Turn-Id": turn,
    ...(idToken ? { Authorization: `Bearer ${idToken}` } : {}),
  };
}

async function call(name, body = null, method = body ? "POST" : "GET", given = null) {
  const response = await fetch(`${functions}/${name}`, {
    method,
    headers: { ...(given ?? (await headers())), ...(body ? { "Content-Type": "application/json" } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const text = await response.text();
  // A busy machine's Firestore is too late for the function: to be asked again, by any client.
  if (response.status === 503) return call(name, body, method, given);
  const json = response.headers.get("content-type") === "application/json";
  return { status: response.status, ...(json ? JSON.parse(text) : { text }) };
}
