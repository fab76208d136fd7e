/**
 * The client that most pages have: it reads the stream, and when that breaks it sends the prompt
 * again. Kept as short as they are; the harm it does is the lab's subject.
 */

import { newTurnId } from 'agent-turns-client';
import type { Parts } from './parts.js';

export interface NaiveRun {
  /** A piece of text came, in the attempt of that number, from 1. */
  onText(piece: string, attempt: number): void;
  /** A tool step ended well. */
  onTool(tool: string): void;
}

const MOST_ATTEMPTS = 5;

/** Send the prompt, and again if the connection breaks; resolves when an answer is complete. */
export async function askNaively(
  prompt: string,
  parts: Parts,
  fetcher: typeof fetch,
  run: NaiveRun,
): Promise<void> {
  for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt += 1) {
    try {
      await attemptOnce(prompt, parts, fetcher, run, attempt);
      return;
    } catch (error) {
      if (attempt === MOST_ATTEMPTS) throw error;
    }
  }
}

async function attemptOnce(
  prompt: string,
  { functions, tokens }: Parts,
  fetcher: typeof fetch,
  run: NaiveRun,
  attempt: number,
): Promise<void> {
  const response = await fetcher(`${functions}/start_turn`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'X-Firebase-AppCheck': await tokens.appCheck(),
      Authorization: `Bearer ${await tokens.idToken(false)}`,
      'X-Stream-Turn-Id': newTurnId(),
    },
    body: JSON.stringify({ prompt }),
  });
  if (!response.ok || !response.body) throw new Error(`HTTP ${response.status}`);
  let buffer = '';
  const reader = response.body
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return; // The end of the response passes for the end of the answer.
    buffer += value;
    const frames = buffer.split('\n\n');
    buffer = frames.pop() ?? '';
    for (const frame of frames) {
      const type = /^event: (.*)$/m.exec(frame)?.[1];
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (type === 'token' && data) run.onText(JSON.parse(data) as string, attempt);
      if (type === 'tool_end' && data) {
        const end = JSON.parse(data) as { tool: string; status: string };
        if (end.status === 'ok') run.onTool(end.tool);
      }
    }
  }
}
