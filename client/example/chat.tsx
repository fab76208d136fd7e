/** The same with React. */

import type { TurnClient } from 'agent-turns-client';
import { useAgentTurn } from 'agent-turns-client/react';

export function Chat({ client }: { client: TurnClient }) {
  const { view, start, approve, deny, stop } = useAgentTurn(client);
  return (
    <>
      <form action={(form) => void start({ prompt: String(form.get('prompt')) })}>
        <input name="prompt" aria-label="Message" required />
        <button type="submit">Send</button>
      </form>
      <p aria-live="polite">{view?.text}</p>
      {view?.pending.map(({ step, tool }) => (
        <p key={step}>
          {tool}?{' '}
          <button type="button" onClick={() => approve(step)}>
            Approve
          </button>
          <button type="button" onClick={() => deny(step)}>
            Deny
          </button>
        </p>
      ))}
      {view?.status === 'streaming' && (
        <button type="button" onClick={stop}>
          Stop
        </button>
      )}
      {view?.error && <p role="alert">{view.error.message}</p>}
    </>
  );
}
