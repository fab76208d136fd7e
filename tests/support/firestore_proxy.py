"""A gRPC proxy in front of the Firestore emulator that does to real calls what a network does.

Calls travel as raw bytes, so every method of every service passes, metadata and status included. A
rule makes calls of one method suffer faults: refused, lost after they were applied, late, or held
until the test says go. A call without a fault keeps its deadline and its cancellation. A call with
one goes its own way once it has arrived: what the fault lets through is applied, even after the
client has given up. (That is the late commit.)

    with FirestoreProxy(upstream=firestore_emulator) as proxy:
        client = ...  # FIRESTORE_EMULATOR_HOST=proxy.address, in this process or in another
        turn = touches(r"agent_turns/[^/]+")
        proxy.inject("Commit", DropAnswer("UNAVAILABLE"), when=turn, times=1)
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import grpc
from google.cloud.firestore_v1 import types as firestore_types

Request = Any
"""A parsed request, such as `google.cloud.firestore_v1.types.CommitRequest`."""
Predicate = Callable[[Request], bool]
Grpc = Any
"""An object of grpc, which publishes no types."""

_STREAMED_REQUESTS = frozenset({"Listen", "Write"})
_MOST_CALLS_AT_ONCE = 200
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0
"""Longer than any machine needs for what is waited for."""
_NO_DEADLINE_SECONDS = 1e8
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_ping_strikes", 0),
)


class Fault:
    """What befalls a call. Faults given together act in the order given."""

    def before(self, call: Call) -> None:
        """Act on a call that has arrived and is not forwarded yet."""

    def after(self, call: Call) -> None:
        """Act on a call that the emulator answered, before the client hears of it.

        The whole answer is in hand, except for Listen and Write: there, its first message.
        """

    def during(self, call: Call, passed: int) -> None:
        """Act when `passed` messages of the answer are gone and the next, or its end, is due."""


@dataclass(frozen=True)
class _Ending(Fault):
    status: str
    details: str = "injected by FirestoreProxy"

    def __post_init__(self) -> None:
        if self.status == "OK" or self.status not in grpc.StatusCode.__members__:
            raise ValueError(f"not the name of a gRPC error: {self.status!r}")


@dataclass(frozen=True)
class Answer(_Ending):
    """Answered with this status and not forwarded: not applied."""

    def before(self, call: Call) -> None:
        call.end(self.status, self.details)


@dataclass(frozen=True)
class DropAnswer(_Ending):
    """Forwarded and applied, then answered with this status whatever the emulator said."""

    def after(self, call: Call) -> None:
        call.end(self.status, self.details)


@dataclass(frozen=True)
class Delay(Fault):
    """Forwarded after a pause, even if the client's own deadline passes meanwhile."""

    seconds: float

    def before(self, call: Call) -> None:
        call.pause(self.seconds)


@dataclass(frozen=True)
class DelayAnswer(Fault):
    """Forwarded and applied at once, answered after a pause."""

    seconds: float

    def after(self, call: Call) -> None:
        call.pause(self.seconds)


@dataclass(frozen=True)
class Hold(Fault):
    """Forwarded once the test sets the event, even if the client has given up by then."""

    until: threading.Event

    def before(self, call: Call) -> None:
        call.hold(self.until)


@dataclass(frozen=True)
class HoldAnswer(Fault):
    """Forwarded and applied at once, answered once the test sets the event."""

    until: threading.Event

    def after(self, call: Call) -> None:
        call.hold(self.until)


@dataclass(frozen=True)
class Meet(Fault):
    """Forwarded once this many calls of the same rule have arrived: they start from one line."""

    parties: int

    def before(self, call: Call) -> None:
        call.meet(self.parties)


@dataclass(frozen=True)
class Hang(Fault):
    """Never answered and never forwarded: it ends when the client gives up or the proxy closes."""

    def before(self, call: Call) -> None:
        call.hang()


@dataclass(frozen=True)
class CutStream(Fault):
    """The answer's first messages pass; then it ends with a status, or (None) falls silent."""

    messages: int
    status: str | None = None

    def during(self, call: Call, passed: int) -> None:
        if passed < self.messages:
            return
        if self.status is None:
            call.hang()
        else:
            call.end(self.status, "cut by FirestoreProxy")


def paths(request: Request) -> tuple[str, ...]:
    """Return the paths a request names, in its order, relative to the database's root.

    The documents written by a Commit, BatchWrite or Write, those read by a BatchGetDocuments, the
    parent of a query ("" for the root).
    """
    writes = getattr(request, "writes", ())
    names = [write.update.name or write.delete or write.transform.document for write in writes]
    names += getattr(request, "documents", ())
    names += [getattr(request, field) for field in ("name", "parent") if hasattr(request, field)]
    return tuple(re.sub(r"^projects/[^/]+/databases/[^/]+/documents/?", "", name) for name in names)


def touches(pattern: str) -> Predicate:
    """Select the requests that name a path which, as a whole, matches the regular expression."""
    compiled = re.compile(pattern)
    return lambda request: any(compiled.fullmatch(path) for path in paths(request))


class FirestoreProxy:
    """The proxy: a context manager that listens on a free port of 127.0.0.1 while it is open.

    Closing it abandons the calls still delayed or held, unforwarded, and raises the first error
    that came out of a test's own predicate.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._changed = threading.Condition()
        self._rules: list[Rule] = []
        self._calls: list[Call] = []
        self._errors: list[Exception] = []
        self._port = 0
        self.closing = False

    def __enter__(self) -> Self:
        self._channel = grpc.insecure_channel(self._upstream, options=_OPTIONS)
        self._threads = ThreadPoolExecutor(_MOST_CALLS_AT_ONCE, "firestore-proxy")
        self._server = grpc.server(self._threads, handlers=[self], options=_OPTIONS)
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        with self._changed:
            self.closing = True
            self._changed.notify_all()
        stopped = self._server.stop(grace=None)
        self._channel.close()
        stopped.wait()
        self._threads.shutdown()
        if error is None and self._errors:
            raise self._errors[0]

    @property
    def address(self) -> str:
        """What FIRESTORE_EMULATOR_HOST is set to."""
        return f"127.0.0.1:{self._port}"

    def inject(
        self,
        method: str,
        *faults: Fault,
        when: Predicate | None = None,
        times: int | None = None,
        after: int = 0,
    ) -> Rule:
        """Let calls of a method (`"*"`: of any) suffer the faults, from the next arrival on.

        Of the calls for which `when` holds, the first `after` pass and the next `times` (None: all)
        suffer. Rules are asked in the order of their making; a call that one of them claims is not
        shown to the rest.
        """
        rule = Rule(self, method, faults, when, times, after)
        with self._changed:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Let later calls pass the rule; those it has already go on suffering. Harmless twice."""
        with self._changed:
            self._rules = [other for other in self._rules if other is not rule]

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call so far, in the order of arrival."""
        with self._changed:
            return tuple(self._calls)

    def wait_for(
        self,
        method: str,
        when: Callable[[Call], bool] = lambda call: call.answered is not None,
        *,
        count: int = 1,
        timeout: float = _PATIENCE_SECONDS,
    ) -> tuple[Call, ...]:
        """Return the calls of a method for which `when` holds, once there are `count` of them.

        By default the calls that ended; `lambda call: call.upstream == "OK"` are those that were
        applied. TimeoutError if there are too few in time.
        """

        def found() -> tuple[Call, ...]:
            return tuple(call for call in self._calls if call.method == method and when(call))

        with self._changed:
            self.wait(lambda: len(found()) >= count, f"{count} calls of {method}", timeout)
            return found()

    def wait(self, done: Callable[[], bool], what: str, timeout: float) -> None:
        """Return once the condition holds, looked at whenever a call gets further."""
        with self._changed:
            if not self._changed.wait_for(done, timeout):
                raise TimeoutError(f"waited {timeout} s for {what}; last calls: {self._calls[-9:]}")

    def service(self, details: Grpc) -> Grpc:
        """Give gRPC the handler of any method whatever: the proxy is its own generic handler."""
        if details.method.rpartition("/")[2] in _STREAMED_REQUESTS:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, details.method))
        return grpc.unary_stream_rpc_method_handler(partial(self._single, details.method))

    def _single(self, path: str, body: bytes, context: Grpc) -> Iterator[bytes]:
        call = self._admit(path, body, context)
        seconds = context.time_remaining()
        own_way = bool(call.faults) or seconds > _NO_DEADLINE_SECONDS
        start = partial(self._channel.unary_stream(path), body, None if own_way else seconds)
        return call.run(start, streamed=False)

    def _stream(self, path: str, requests: Iterator[bytes], context: Grpc) -> Iterator[bytes]:
        requests = _until_cancelled(requests)
        first = tuple(itertools.islice(requests, 1))
        call = self._admit(path, b"".join(first), context)
        start = partial(self._channel.stream_stream(path), itertools.chain(first, requests))
        return call.run(start, streamed=True)

    def _admit(self, path: str, body: bytes, context: Grpc) -> Call:
        call = Call(self, self._changed, path.rpartition("/")[2], body, context)
        with self._changed:
            try:
                call.rule = next((rule for rule in self._rules if rule.claims(call)), None)
            except Exception as error:  # noqa: BLE001 - a test's predicate, raised when we close
                self._errors.append(error)
                call.rule = Rule(self, "*", (Answer("INTERNAL", repr(error)),))
            self._calls.append(call)
            self._changed.notify_all()
        return call


@dataclass
class Rule:
    """A standing order to let calls suffer faults; `FirestoreProxy.inject` makes it."""

    proxy: FirestoreProxy
    method: str
    faults: tuple[Fault, ...]
    when: Predicate | None = None
    times: int | None = None
    after: int = 0
    fired: int = 0

    def wait(self, count: int = 1, *, timeout: float = _PATIENCE_SECONDS) -> None:
        """Return once the rule has fired this often; TimeoutError if it does not in time."""
        self.proxy.wait(lambda: self.fired >= count, f"{count} times {self.faults}", timeout)

    def claims(self, call: Call) -> bool:
        """Count a call that matches and say whether the rule fires on it; under the lock."""
        if self.method not in ("*", call.method) or self.fired == self.times:
            return False
        if self.when is not None and not self.when(call.request):
            return False
        if self.after:
            self.after -= 1
            return False
        self.fired += 1
        return True


class Call:
    """A call on its way: what is known of it so far, and what a fault may do with it.

    Times are `time.monotonic()`; `body` is the request as it came (the first, of a stream of them).
    `upstream` is the status the emulator ended the call with, `answered` the one the proxy ended it
    with: CANCELLED if the client had left by then.
    """

    def __init__(
        self,
        proxy: FirestoreProxy,
        changed: threading.Condition,
        method: str,
        body: bytes,
        context: Grpc,
    ) -> None:
        self.method = method
        self.body = body
        self.arrived = time.monotonic()
        self.forwarded: float | None = None
        self.upstream: str | None = None
        self.answered: str | None = None
        self.rule: Rule | None = None
        self._proxy = proxy
        self._changed = changed
        self._context = context
        self._gone = False

    def __repr__(self) -> str:
        return (
            f"<{self.method} arrived={self.arrived:.3f} faults={self.faults} "
            f"forwarded={self.forwarded} upstream={self.upstream} answered={self.answered}>"
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What befell it; empty for a call that passed as it was."""
        return () if self.rule is None else self.rule.faults

    @cached_property
    def request(self) -> Request:
        """The parsed body; None for a method of another service."""
        kind = getattr(firestore_types, f"{self.method}Request", None)
        return None if kind is None else kind.deserialize(self.body)

    def pause(self, seconds: float) -> None:
        """Wait this long, whether or not the client does."""
        with self._changed:
            self._changed.wait_for(lambda: self._proxy.closing, seconds)
        self._end_if_closing()

    def hold(self, until: threading.Event) -> None:
        """Wait for the event, whether or not the client does."""
        while not until.wait(_POLL_SECONDS):
            self._end_if_closing()

    def meet(self, parties: int) -> None:
        """Wait until the rule has fired this often."""
        rule = self.rule
        with self._changed:
            self._changed.wait_for(
                lambda: self._proxy.closing or rule is None or rule.fired >= parties
            )
        self._end_if_closing()

    def hang(self) -> None:
        """Wait until the client leaves, and end."""
        with self._changed:
            self._changed.wait_for(lambda: self._proxy.closing or self._gone)
        self.end("CANCELLED", "never answered")

    def end(self, status: str, details: str) -> None:
        """End the call with a status: nothing later in it happens."""
        raise _EndedError(status, details)

    def run(self, start: Callable[..., Grpc], *, streamed: bool) -> Iterator[bytes]:
        """Carry the call to the emulator and its answer back, through the faults."""
        self._gone = not self._context.add_callback(self._leave)
        try:
            for fault in self.faults:
                fault.before(self)
            upstream = self._forward(start, follow_client=streamed or not self.faults)
            messages = self._messages(upstream)
            if self.faults:
                answer = [*messages] if not streamed else itertools.islice(messages, 1)
                messages = itertools.chain(tuple(answer), messages)
            for fault in self.faults:
                fault.after(self)
            passed = 0
            for passed, message in enumerate(messages, 1):
                for fault in self.faults:
                    fault.during(self, passed - 1)
                yield message
            for fault in self.faults:
                fault.during(self, passed)
            self._context.set_trailing_metadata(upstream.trailing_metadata())
            status, details = upstream.code().name, upstream.details() or ""
        except _EndedError as ended:
            status, details = ended.args
        except GeneratorExit:  # gRPC drops the answer of a client that left
            self._note(answered="CANCELLED")
            raise
        self._note(answered="CANCELLED" if self._gone else status)
        if status != "OK":
            self._context.abort(grpc.StatusCode[status], details)

    def _forward(self, start: Callable[..., Grpc], *, follow_client: bool) -> Grpc:
        metadata = [
            (key, value)
            for key, value in self._context.invocation_metadata()
            if key != "user-agent" and not key.startswith("grpc-")
        ]
        self._end_if_closing()
        upstream = start(metadata=metadata)
        self._note(forwarded=time.monotonic())
        if follow_client and not self._context.add_callback(upstream.cancel):
            upstream.cancel()
        return upstream

    def _messages(self, upstream: Grpc) -> Iterator[bytes]:
        with contextlib.suppress(grpc.RpcError):  # its status is read here and by the caller
            yield from upstream
        self._note(upstream=upstream.code().name)

    def _leave(self) -> None:
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _note(self, **known: object) -> None:
        with self._changed:
            vars(self).update(known)
            self._changed.notify_all()

    def _end_if_closing(self) -> None:
        if self._proxy.closing:
            self.end("CANCELLED", "the proxy was closed")


class _EndedError(Exception):
    """Ends a call with a status and details."""


def _until_cancelled(requests: Iterator[bytes]) -> Iterator[bytes]:
    """End the requests, instead of raising, when the client cancels."""
    with contextlib.suppress(grpc.RpcError):
        yield from requests
