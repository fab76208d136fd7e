/** Where this page is served, and so which project and which functions it calls. */

import type { FirebaseOptions } from 'firebase/app';

/** What `public/config.json` says: all that a deployment has to set. */
interface Config {
  readonly region: string;
  /** Of the web app's reCAPTCHA Enterprise key. Not needed on the Emulator Suite. */
  readonly recaptchaEnterpriseSiteKey: string;
}

export interface Site {
  readonly firebase: FirebaseOptions;
  readonly project: string;
  /** The URL that a function's name is appended to. */
  readonly functions: string;
  readonly siteKey: string;
  /** Set on the Emulator Suite only. */
  readonly local: { readonly auth: string; readonly control: string | null } | null;
}

/** Something that the person who deploys or runs the page can mend. */
export class SiteProblem extends Error {}

/** Ask Hosting for the project, and the emulators for their ports. Throws a `SiteProblem`. */
export async function readSite(): Promise<Site> {
  const firebase = await json<FirebaseOptions>('/__/firebase/init.json');
  const config = await json<Config>('/config.json');
  const project = firebase?.projectId;
  if (!firebase || !config || !project) {
    throw new SiteProblem(
      'Hosting does not say which project this is. Serve the page by `make dev` or `firebase deploy`, ' +
        'and register a web app in the Firebase console.',
    );
  }
  const common = { firebase, project, siteKey: config.recaptchaEnterpriseSiteKey };
  if (!project.startsWith('demo-')) {
    const functions = `https://${config.region}-${project}.cloudfunctions.net`;
    return { ...common, functions, local: null };
  }
  const emulators = await readEmulators();
  return {
    ...common,
    functions: `http://${emulators.functions}/${project}/${config.region}`,
    local: { auth: `http://${emulators.auth}`, control: await findControl() },
  };
}

/** The Hosting emulator tells the others' addresses in a script for the old SDK; read them there. */
async function readEmulators(): Promise<{ functions: string; auth: string }> {
  const script = await (await fetch('/__/firebase/init.js?useEmulator=true')).text();
  const found = /firebaseEmulators = (\{[\s\S]*?\n\});/.exec(script)?.[1];
  const emulators = found ? (JSON.parse(found) as Record<string, { hostAndPort: string }>) : {};
  const [functions, auth] = [emulators.functions?.hostAndPort, emulators.auth?.hostAndPort];
  if (!functions || !auth) throw new SiteProblem('The Functions and Auth emulators do not run.');
  return { functions, auth };
}

/** `make dev` leaves the control server's address in a file; `?control=PORT` names another. */
async function findControl(): Promise<string | null> {
  const port = new URLSearchParams(location.search).get('control');
  if (port && /^[0-9]{1,5}$/.test(port)) return `http://127.0.0.1:${port}`;
  return (await json<{ control: string }>('/assets/local.json'))?.control ?? null;
}

async function json<T>(path: string): Promise<T | null> {
  const response = await fetch(path, { cache: 'no-store' });
  return response.ok ? ((await response.json()) as T) : null;
}
