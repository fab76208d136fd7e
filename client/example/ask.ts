/** Asks the agent of `make dev` from a terminal, and prints the answer while it comes. */

import { TurnClient } from 'agent-turns-client';
import { emulatorTokens } from 'agent-turns-client/emulator';

const client = new TurnClient({
  functions: 'http://127.0.0.1:5001/demo-agent-turns/us-central1',
  tokens: emulatorTokens('demo-agent-turns', 'ada'),
});

const turn = client.start({ prompt: process.argv[2] ?? 'Tell me about leases' });
let shown = '';
turn.subscribe(() => {
  const { text, status } = turn.getSnapshot();
  // A rewind took text back: say all of it again.
  process.stdout.write(text.startsWith(shown) ? text.slice(shown.length) : `\n${text}`);
  shown = text;
  if (status === 'waiting') turn.close(); // for a person, who may take days
});
const { status, error } = await turn.finished;
console.log(`\n${status}${error ? `: ${error.code}, ${error.message}` : ''}`);
