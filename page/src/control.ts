/** The local control server (`dev/control.py`): it kills containers and counts effects. */

/** What took place so far; null for what nobody can tell. */
export interface Effects {
  /** As the payment server counts them. */
  readonly charges: number | null;
  readonly refunds: number | null;
  /** As Firestore counts them. */
  readonly tickets: number | null;
}

export class Control {
  constructor(readonly url: string) {}

  /** End the processes that serve turns, by SIGKILL; return how many there were. */
  async kill(): Promise<number> {
    const headers = { 'X-Agent-Turns-Control': '1' };
    const response = await fetch(`${this.url}/kill`, { method: 'POST', headers });
    if (!response.ok) throw new Error(`the control server answered ${response.status}`);
    return ((await response.json()) as { killed: number }).killed;
  }

  /** Count what took place so far. */
  async effects(): Promise<Effects> {
    const response = await fetch(`${this.url}/effects`);
    if (!response.ok) throw new Error(`the control server answered ${response.status}`);
    return (await response.json()) as Effects;
  }
}
