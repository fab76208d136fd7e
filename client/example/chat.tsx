/** The same with React. */

import type { TurnClient } from 'agent-turns-client';
import { useAgentTurn } from 'agent-turns-client/react';
import { useState } from 'react';

export function Chat({ client }: { client: TurnClient }) {
  const { view, start, approve, deny, stop } = useAgentTurn(client);
  // What was refused, or could not be asked for: not the turn, which goes on.
  const [refusal, setRefusal] = useState('');
  const sure = (asked: Promise<void>) =>
    asked.then(
      () => setRefusal(''),
      (error: Error) => setRefusal(error.message),
    );
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
          <button type="button" onClick={() => sure(approve(step))}>
            Approve
          </button>
          <button type="button" onClick={() => sure(deny(step))}>
            Deny
          </button>
        </p>
      ))}
      {view?.status === 'streaming' && (
        <button type="button" onClick={() => sure(stop())}>
          Stop
        </button>
      )}
      <p role="alert">{view?.error?.message ?? refusal}</p>
    </>
  );
}
