/** When the client tries again: by tables, and by what holds for all values. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setbackOf } from '../src/answer.js';
import { judge, retryAfter, type Setback } from '../src/backoff.js';
import fc from './support/properties.js';

function refusal(status?: number, code = 'x', retryAfterMs?: number): Setback {
  return { problem: { code, message: '', status }, retryAfterMs };
}

const kind = (setback: Setback, refreshed = false, failures = 1) => {
  const verdict = judge(setback, failures, refreshed, {}, 0.5);
  return typeof verdict === 'number' ? 'retry' : verdict;
};

test('each answer has its reaction', () => {
  for (const status of [400, 403, 404, 405, 409, 410, 413, 415, 418, 200])
    assert.equal(kind(refusal(status)), 'error', `${status}`);
  for (const status of [undefined, 408, 425, 429, 500, 502, 503, 504])
    assert.equal(kind(refusal(status)), 'retry', `${status}`);
  assert.equal(kind(refusal(502, 'agent_failed')), 'error');
  assert.equal(kind(refusal(503, 'not_configured')), 'error');
  assert.equal(kind(refusal(401)), 'refresh');
  assert.equal(kind(refusal(401), true), 'error');
});

test('each code has the reaction of the protocol, also where a proxy made 200 of its status', () => {
  const protocol = readFileSync(new URL('../../../docs/PROTOCOL.md', import.meta.url), 'utf8');
  const rows = [...protocol.matchAll(/^\| (\d{3}) \| `(\w+)` \|.*\| ([^|]+) \|$/gm)];
  assert.ok(rows.length > 25);
  for (const [, status, code, reaction = ''] of rows) {
    const headers: Record<string, string> = /^comes back/.test(reaction)
      ? { 'Retry-After': '1' }
      : {};
    const wanted = /fresh|signs in/.test(reaction)
      ? 'refresh'
      : /^(comes back|resumes, with back-off)/.test(reaction)
        ? 'retry'
        : 'error';
    for (const said of [Number(status), 200]) {
      const answer = new Response(null, { status: said, headers });
      assert.equal(kind(setbackOf(answer, { error: { code } })), wanted, `${said} ${code}`);
    }
  }
});

test('too many failures in a row end it, unless it ends anyway', () => {
  const maxFailures = 10;
  assert.equal(kind(refusal(503), false, maxFailures - 1), 'retry');
  assert.equal(kind(refusal(503), false, maxFailures), 'failed');
  assert.equal(kind(refusal(503, 'x', 1_000), false, maxFailures), 'failed');
  assert.equal(kind(refusal(404), false, maxFailures), 'error');
  assert.equal(kind(refusal(401), false, maxFailures), 'refresh');
});

test('the delay is anywhere from 0 to a bound that doubles up to the cap', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 9 }), fc.double({ min: 0, max: 0.999 }), (n, random) => {
      const verdict = judge(refusal(), n, false, {}, random);
      const bound = Math.min(30_000, 500 * 2 ** Math.max(0, n - 1));
      assert.equal(verdict, random * bound);
    }),
  );
});

test('an option that is left unset, in whatever way, has its default', () => {
  const unset = { baseMs: undefined, capMs: undefined, maxFailures: undefined } as never;
  for (const options of [undefined, {}, unset]) {
    const verdict = (n: number) => judge(refusal(), n, false, options, 0.5);
    assert.equal(verdict(1), 250);
    assert.equal(verdict(9), 15_000);
    assert.equal(verdict(10), 'failed');
  }
});

test('Retry-After is the least delay, and clients that it was told to do not come back together', () => {
  for (const random of [0, 0.5, 0.99]) {
    const verdict = judge(refusal(503, 'x', 7_000), 1, false, {}, random);
    assert.equal(verdict, 7_000 + random * 500);
    // A server that stays busy for long is not given up in ten times its first guess.
    const later = judge(refusal(503, 'x', 7_000), 5, false, {}, random);
    assert.equal(later, 7_000 + random * 8_000);
  }
});

test('Retry-After is seconds or a date, and never longer than five minutes', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  for (const [header, ms] of [
    ['7', 7_000],
    ['0', 0],
    ['Thu, 01 Jan 2026 00:00:09 GMT', 9_000],
    ['Wed, 31 Dec 2025 00:00:00 GMT', 0],
    ['86400', 300_000],
    ['99999999999999999999', 300_000],
    ['soon', undefined],
    ['-5', undefined],
    ['1.5', undefined],
    ['7, 7', undefined],
    ['1e3', undefined],
    ['\u0667', undefined],
    ['garbage 5', undefined],
    ['Thu, 99 Xyz 2026 00:00:09 GMT', undefined],
    ['Thu, 01 Jan 2099 00:00:00 GMT', 300_000],
    ['', undefined],
  ] as const)
    assert.equal(retryAfter(header, now), ms, `${header}`);
});
