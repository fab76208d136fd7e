/** A page without a framework: one turn, shown, decided, stopped, and kept over a reload. */

import { type SavedTurn, TurnClient, type TurnHandle } from 'agent-turns-client';
import { type AuthLike, firebaseTokens } from 'agent-turns-client/firebase';

// What the page has of the Firebase SDK:
//   const app = initializeApp(config);
//   const appCheck = initializeAppCheck(app, { provider: new ReCaptchaEnterpriseProvider(siteKey) });
//   const auth = getAuth(app);
declare const appCheck: unknown;
declare const auth: AuthLike;
declare function getLimitedUseToken(of: typeof appCheck): Promise<{ token: string }>;

declare const answer: HTMLElement;
declare const approvals: HTMLElement;
declare const stopButton: HTMLButtonElement;

const client = new TurnClient({
  functions: 'https://us-central1-my-project.cloudfunctions.net',
  tokens: firebaseTokens(() => getLimitedUseToken(appCheck), auth),
});

let turn: TurnHandle | null = null;

export function ask(prompt: string): void {
  show(client.start({ prompt, sessionId: 'main' }));
}

function show(next: TurnHandle): void {
  turn?.close();
  turn = next;
  turn.subscribe(() => paint(next));
  paint(next);
}

function paint({ getSnapshot, approve }: TurnHandle): void {
  const { text, status, error, pending } = getSnapshot();
  answer.textContent = error ? `${text}\n\n${error.message}` : text;
  answer.ariaBusy = String(status === 'streaming');
  approvals.replaceChildren(
    ...pending.map(({ step, tool, args }) => {
      const button = document.createElement('button');
      button.textContent = `Let ${tool} run with ${JSON.stringify(args)}`;
      button.onclick = () => approve(step).catch(console.error);
      return button;
    }),
  );
}

stopButton.onclick = () => turn?.stop().catch(console.error);

// A reloaded page goes on where it was; where the browser forbids storage, it begins anew.
addEventListener('pagehide', () => {
  try {
    if (turn) sessionStorage.setItem('turn', JSON.stringify(turn.save()));
  } catch (error) {
    console.warn(error);
  }
});
try {
  const saved = sessionStorage.getItem('turn');
  if (saved) show(client.resume(JSON.parse(saved) as SavedTurn));
} catch (error) {
  console.warn(error);
}
