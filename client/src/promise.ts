import type { Writable } from './view.js';

/** A promise with the functions that settle it. (`Promise.withResolvers` is too new for some.) */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (reason: Error) => void;
}

/** Return one that is not settled. */
export function defer<Value = void>(): Deferred<Value> {
  const deferred = {} as Writable<Deferred<Value>>;
  deferred.promise = new Promise((resolve, reject) => {
    deferred.resolve = resolve;
    deferred.reject = reject;
  });
  return deferred;
}
