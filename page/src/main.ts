/** The demo page, put together: who it is, what it calls, and its views. */

import { type TimelineEntry, TurnClient, type TurnView } from 'agent-turns-client';
import { Announcer } from './announcer.js';
import { statusWords } from './bubble.js';
import { Chat } from './chat.js';
import { Control } from './control.js';
import { h, say, the } from './dom.js';
import { type Identity, signIn } from './identity.js';
import { chunkDropLab } from './labs/chunk_drop.js';
import { idleTimeoutLab } from './labs/idle_timeout.js';
import { Meter } from './meter.js';
import { BadNetwork } from './network.js';
import { readSite } from './site.js';
import { Store } from './store.js';
import { Timeline } from './timeline.js';
import { showViews } from './views.js';

async function main(): Promise<void> {
  showViews();
  const meter = new Meter(the('meter'));
  const site = await readSite();
  const identity = await signIn(site);
  const network = new BadNetwork();
  const timeline = new Timeline(the('timeline'), the('timeline-empty'));
  const control = site.local?.control ? new Control(site.local.control) : null;

  const client = (fetcher: typeof fetch, onTimeline?: (entry: TimelineEntry) => void) =>
    new TurnClient({
      functions: site.functions,
      tokens: identity.tokens,
      fetch: fetcher,
      onTimeline,
    });
  const turns = client(network.fetch, (entry) => timeline.add(entry));
  const onPaint = (view: TurnView) => {
    meter.painted();
    say(the('wire-status'), statusWords(view));
  };
  const store = new Store(identity.uid);
  const chat = new Chat(turns, store, new Announcer(the('announcer')), onPaint);

  breakers(network, timeline, control);
  account(identity, () => {
    chat.clear();
    timeline.clear();
    say(the('wire-status'), 'Idle');
  });
  const parts = { client, functions: site.functions, tokens: identity.tokens, control };
  the('labs').append(chunkDropLab(parts), idleTimeoutLab(parts));
  document.body.dataset.ready = 'true';
}

/** What breaks the connections of the chat. */
function breakers(network: BadNetwork, timeline: Timeline, control: Control | null): void {
  the('cut').addEventListener('click', () => {
    timeline.note('you', network.streams ? 'cut the connection' : 'nothing is open');
    network.cut();
  });
  the('silence').addEventListener('click', () => {
    timeline.note('you', network.streams ? 'let the line go silent' : 'nothing is open');
    network.goSilent();
  });
  const kill = the('kill');
  kill.hidden = control === null;
  kill.addEventListener('click', () => {
    control?.kill().then(
      (killed) => timeline.note('you', `killed ${killed} processes (SIGKILL)`),
      (error: Error) => timeline.note('error', error.message),
    );
  });
}

function account(identity: Identity, onNew: () => void): void {
  const who = h('span', { class: 'who', title: identity.uid }, `Guest ${identity.uid.slice(0, 4)}`);
  const leave = () => {
    onNew();
    void identity.leave();
  };
  the('account').append(
    who,
    h('button', { type: 'button', class: 'link who', click: leave }, 'Sign out'),
    h('button', { type: 'button', id: 'new', click: onNew }, 'New chat'),
  );
}

main().catch((error: unknown) => {
  console.error(error);
  const words = error instanceof Error ? error.message : String(error);
  the('welcome').prepend(
    h('p', { class: 'problem', role: 'alert' }, `The page cannot start. ${words}`),
  );
});
