/** A `fetch` that behaves like a bad network: sockets end in mid-stream, go silent, are cut when idle. */

/** What becomes of a piece of the response. `hold`: it, and all after it, never arrives. */
export type Verdict = 'pass' | 'hold' | 'cut';

/** What one connection does with each piece that arrives. Made anew for each. */
export type Fault = (piece: Uint8Array) => Verdict;

export interface Wire {
  /** Says what to do with the connections that are opened from now on; null: they work. */
  fault: ((url: string) => Fault) | null;
  /** A proxy of this patience ends a connection that carried nothing that counts for so long. */
  patience: { readonly ms: number; counts(piece: Uint8Array): boolean } | null;
}

interface Connection {
  cut(): void;
  hold(): void;
}

const PING = /^(:[^\n]*\n\n)+$/;

/** Whether a piece of a stream is keep-alives, and nothing else. */
export function isKeepAlive(piece: Uint8Array): boolean {
  return piece.length < 256 && PING.test(new TextDecoder().decode(piece));
}

export class BadNetwork implements Wire {
  fault: Wire['fault'] = null;
  patience: Wire['patience'] = null;
  readonly #open = new Set<Connection>();

  /** In place of the browser's. */
  readonly fetch: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    const isStream = response.headers.get('Content-Type')?.startsWith('text/event-stream');
    if (!response.body || !isStream) return response;
    const url = input instanceof Request ? input.url : String(input);
    const body = this.#carry(response.body, this.fault?.(url) ?? null, init?.signal ?? null);
    const { status, statusText, headers } = response;
    return new Response(body, { status, statusText, headers });
  };

  /** How many streams are open. */
  get streams(): number {
    return this.#open.size;
  }

  /** End every open stream, as a lost connection does. */
  cut(): void {
    for (const connection of [...this.#open]) connection.cut();
  }

  /** Leave every open stream open, and let nothing arrive on it any more. */
  goSilent(): void {
    for (const connection of this.#open) connection.hold();
  }

  #carry(
    source: ReadableStream<Uint8Array>,
    fault: Fault | null,
    signal: AbortSignal | null,
  ): ReadableStream<Uint8Array> {
    const reader = source.getReader();
    const patience = this.patience;
    let held = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let end = (_error: unknown) => {};
    const connection: Connection = {
      cut: () => end(new TypeError('network error')),
      hold: () => {
        held = true;
      },
    };
    const wait = () => {
      clearTimeout(timer);
      if (patience) timer = setTimeout(connection.cut, patience.ms);
    };
    const forget = () => {
      clearTimeout(timer);
      this.#open.delete(connection);
    };
    this.#open.add(connection);
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        end = (error) => {
          if (!this.#open.has(connection)) return;
          forget();
          controller.error(error);
          reader.cancel().catch(() => {});
        };
        signal?.addEventListener('abort', () => end(signal.reason));
        wait();
        const pump = async () => {
          for (;;) {
            const { done, value } = await reader.read();
            if (!this.#open.has(connection)) return;
            if (done && held) return; // A dead line carries no goodbye either.
            if (done) {
              forget();
              controller.close();
              return;
            }
            if (held) continue;
            if (patience?.counts(value)) wait();
            const verdict = fault?.(value) ?? 'pass';
            if (verdict === 'pass') controller.enqueue(value);
            else if (verdict === 'hold') connection.hold();
            else connection.cut();
          }
        };
        pump().catch(end);
      },
      cancel: (reason) => {
        forget();
        return reader.cancel(reason);
      },
    });
  }
}
