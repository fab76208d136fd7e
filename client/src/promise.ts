/** A promise with the functions that settle it. (`Promise.withResolvers` is too new for some.) */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (reason: Error) => void;
}

/** Return one that is not settled. */
export function defer<Value = void>(): Deferred<Value> {
  let settle: unknown[] = [];
  const promise = new Promise<Value>((...functions) => {
    settle = functions;
  });
  const [resolve, reject] = settle as [Deferred<Value>['resolve'], Deferred<Value>['reject']];
  return { promise, resolve, reject };
}
