/** The React hook: in StrictMode, on the server, over a remount. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Window } from 'happy-dom';
import { act, StrictMode, useEffect } from 'react';
import { renderToString } from 'react-dom/server';
import { Chat as Example } from '../example/chat.js';
import type { TurnClient } from '../src/index.js';
import { type AgentTurn, useAgentTurn } from '../src/react.js';
import { clientOf, PROMPT, refuse, says, stalled, TurnServer, until } from './support/server.js';

const window = new Window();
const names = ['document', 'navigator', 'window', 'FormData'] as const;
const kept = names.map((name) => Object.getOwnPropertyDescriptor(globalThis, name));
before(() => {
  const { document, navigator, FormData } = window;
  const values = { document, navigator, window, FormData };
  for (const name of names)
    Object.defineProperty(globalThis, name, { value: values[name], configurable: true });
  Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
});
after(async () => {
  names.forEach((name, at) => {
    Reflect.deleteProperty(globalThis, name);
    const before = kept[at];
    if (before) Object.defineProperty(globalThis, name, before);
  });
  await window.happyDOM.close();
});

let hook: AgentTurn;
let renders = 0;

function Chat({ client, resume }: { client: TurnClient; resume?: string }) {
  hook = useAgentTurn(client);
  const { resume: go } = hook;
  renders++;
  useEffect(() => {
    if (resume) go({ turnId: resume });
  }, [go, resume]);
  return <p>{hook.view ? `${hook.view.status}: ${hook.view.text}` : 'nothing yet'}</p>;
}

async function mount(page: React.ReactNode) {
  const { createRoot } = await import('react-dom/client');
  const place = window.document.createElement('div');
  window.document.body.append(place);
  const root = createRoot(place as unknown as Element);
  await act(async () => root.render(page));
  return {
    text: () => place.textContent,
    find: (selector: string) => place.querySelector(selector) as unknown as HTMLElement | null,
    render: (next: React.ReactNode) => act(async () => root.render(next)),
    unmount: () => act(async () => root.unmount()),
  };
}

/** Wait in `act`, in which React takes note of what comes meanwhile. */
const shows = (holds: () => boolean) => act(() => until(holds));

test('on the server there is no turn yet, and nothing is connected', async (t) => {
  const server = await new TurnServer(says('a')).listen(t);
  const { client } = clientOf(server);
  assert.equal(renderToString(<Chat client={client} resume="x" />), '<p>nothing yet</p>');
  assert.equal(server.seen.length, 0);
});

test('a turn is started, painted and over, in StrictMode, by one request', async (t) => {
  const server = await new TurnServer(says('Hello, ', 'world')).listen(t);
  const { client } = clientOf(server);
  const page = await mount(
    <StrictMode>
      <Chat client={client} />
    </StrictMode>,
  );
  assert.equal(page.text(), 'nothing yet');
  const { start } = hook;
  await act(async () => void start(PROMPT));
  await shows(() => hook.view?.status === 'done');
  assert.equal(page.text(), 'done: Hello, world');
  assert.equal(hook.start, start, 'the functions keep their identity');
  assert.equal(server.seen.length, 1);
  await page.unmount();
});

test('a turn that an effect resumes is followed once, though StrictMode runs effects twice', async (t) => {
  const server = await new TurnServer(says('a', 'b'), () => stalled(1)).listen(t);
  const { client } = clientOf(server);
  const page = await mount(
    <StrictMode>
      <Chat client={client} resume={'x'.repeat(20)} />
    </StrictMode>,
  );
  await shows(() => hook.view?.text === 'a');
  await until(() => server.open === 1, 'the first of the two is left');
  await page.unmount();
  await until(() => server.open === 0, 'an unmounted component holds no socket');
  assert.equal(server.calls('cancel_turn').length, 0);
});

test('many tokens are few renders', async (t) => {
  const words = Array.from({ length: 2_000 }, (_, at) => `${at} `);
  const server = await new TurnServer(says(...words)).listen(t);
  const page = await mount(<Chat client={clientOf(server).client} />);
  renders = 0;
  await act(async () => void hook.start(PROMPT));
  await shows(() => hook.view?.status === 'done');
  assert.equal(hook.view?.text, words.join(''));
  assert.ok(renders < 100, `${renders} renders`);
  await page.unmount();
});

test('what is started or resumed after the component went opens no stream, and goes on if it is back', async (t) => {
  const server = await new TurnServer(says('a'), () => stalled()).listen(t);
  const { client, timeline } = clientOf(server);
  const page = await mount(<Chat client={client} />);
  await page.unmount();
  assert.equal((await hook.start({ prompt: 'late' }).finished).status, 'closed');
  assert.equal((await hook.resume({ turnId: 'x'.repeat(20) }).finished).status, 'closed');
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(
    [server.seen.length, timeline.filter(({ kind }) => kind === 'request').length],
    [0, 0],
  );
  // Hidden by React for a while, as Activity and StrictMode do: what is asked for meanwhile is followed.
  const { Activity } = await import('react');
  const shown = (mode: 'visible' | 'hidden') => (
    <Activity mode={mode}>
      <Chat client={client} />
    </Activity>
  );
  const again = await mount(shown('visible'));
  await again.render(shown('hidden'));
  await act(async () => void hook.start({ prompt: 'meanwhile' }));
  assert.equal(server.seen.length, 0);
  await again.render(shown('visible'));
  await act(() => until(() => server.open === 1));
  assert.equal(server.seen[0]?.call, 'start_turn');
  await again.unmount();
  await until(() => server.open === 0);
});

test('the example shows what is refused, and leaves no rejection to nobody', async (t) => {
  const pending = { step: 1, tool: 'refund', args: {}, expiresAt: '2030-01-01T00:00:00Z' };
  const server = await new TurnServer([['tool_pending', pending]]).listen(t);
  server.behave = (_, { call }) =>
    call === 'run_tool_step' ? refuse(404, 'unknown_step') : undefined;
  const page = await mount(<Example client={clientOf(server).client} />);
  page.find('input')?.setAttribute('value', 'hello');
  await act(async () => page.find('button')?.click());
  await shows(() => !!page.find('p button'));
  await act(async () => page.find('p button')?.click());
  await shows(() => page.text()?.includes('says unknown_step') ?? false);
  await page.unmount();
});

test('without a turn, what needs one rejects', async (t) => {
  const server = await new TurnServer([]).listen(t);
  const page = await mount(<Chat client={clientOf(server).client} />);
  assert.equal(hook.save(), null);
  await assert.rejects(hook.approve(1), /no turn/);
  await assert.rejects(hook.stop(), /no turn/);
  await page.unmount();
});
