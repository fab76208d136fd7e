// Clients that try things under a rules file. Reads one JSON value from stdin,
// {host, port, project, rules, clients: {name: null | {uid, claims}}, seed: [path], tries: [[client, what, path]]},
// and prints one JSON list: for each try "allowed", "denied", or the error that it should not be.

import { readFileSync } from "node:fs";

import { initializeTestEnvironment } from "@firebase/rules-unit-testing";
import {
  collection,
  collectionGroup,
  deleteDoc,
  doc,
  getDoc,
  getDocs,
  setDoc,
  setLogLevel,
  updateDoc,
} from "firebase/firestore";

setLogLevel("silent"); // it would log every refusal, and refusals are what this is about

const { host, port, project, rules, clients, seed, tries } = JSON.parse(readFileSync(0, "utf8"));

const WAYS = {
  get: (db, path) => getDoc(doc(db, path)),
  list: (db, path) => getDocs(collection(db, path)),
  group: (db, id) => getDocs(collectionGroup(db, id)),
  create: (db, path) => setDoc(doc(db, `${path}-new`), { tried: true }),
  update: (db, path) => updateDoc(doc(db, path), { tried: true }),
  delete: (db, path) => deleteDoc(doc(db, path)),
};

const environment = await initializeTestEnvironment({
  projectId: project,
  firestore: { rules, host, port },
});

const databases = Object.fromEntries(
  Object.entries(clients).map(([name, who]) => {
    const context =
      who === null
        ? environment.unauthenticatedContext()
        : environment.authenticatedContext(who.uid, who.claims);
    return [name, context.firestore()];
  }),
);

// What a try changed is put back before the next one.
async function seeded() {
  await environment.withSecurityRulesDisabled(async (context) => {
    const db = context.firestore();
    await Promise.all(seed.map((path) => setDoc(doc(db, path), { owner: "owner" })));
  });
}

await seeded();
const came = [];
for (const [client, what, path] of tries) {
  try {
    await WAYS[what](databases[client], path);
    came.push("allowed");
    if (what === "delete" || what === "update") await seeded();
  } catch (error) {
    came.push(error.code === "permission-denied" ? "denied" : `${error.code}: ${error.message}`);
  }
}
console.log(JSON.stringify(came));
await environment.cleanup();
process.exit(0); // the SDK's connections would keep it
