"""A gRPC proxy in front of the emulator that counts what Firestore would bill."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.firestore_v1 import types

if TYPE_CHECKING:
    from typing import Self

_THREADS = 32


@dataclass
class Bill:
    """Documents written and read. A look for a missing one is a read; so is an empty query."""

    written: Counter[str] = field(default_factory=Counter)
    """By the collection that the document is in."""
    reads: int = 0


class CountingProxy:
    """A context manager; clients connect to `address` while it is open."""

    def __init__(self, upstream: str) -> None:
        self.bill = Bill()
        self._lock = threading.Lock()
        self._channel = grpc.insecure_channel(upstream)
        self._server = grpc.server(ThreadPoolExecutor(_THREADS))
        self._server.add_generic_rpc_handlers([_Handler(self._forward)])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=1).wait()
        self._channel.close()

    def _forward(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Pass a call on as bytes: on the wire, one message and a stream of them are alike."""
        count = _COUNTERS.get(method.rpartition("/")[2], _nothing)
        metadata = [pair for pair in context.invocation_metadata() if pair[0] != "user-agent"]
        sent: list[bytes] = []
        try:
            call = self._channel.stream_stream(method)(
                _noted(requests, sent), metadata=metadata, timeout=context.time_remaining()
            )
            answers = []
            for answer in call:
                answers.append(answer)
                yield answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        with self._lock:
            count(self.bill, sent, answers)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, forward: Callable[[str, Iterator[bytes], Any], Iterator[bytes]]) -> None:
        self._forward = forward

    def service(self, details: Any) -> Any:
        """Take every call."""

        def handle(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return self._forward(details.method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)


def _noted(requests: Iterator[bytes], sent: list[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(grpc.RpcError):  # the caller hung up
        for request in requests:
            sent.append(request)
            yield request


def _nothing(_bill: Bill, _sent: list[bytes], _answers: list[bytes]) -> None:
    """Cost nothing."""


def _commit(bill: Bill, sent: list[bytes], _answers: list[bytes]) -> None:
    for each in sent:
        for write in types.CommitRequest.deserialize(each).writes:
            bill.written[(write.update.name or write.delete).split("/")[-2]] += 1


def _get(bill: Bill, _sent: list[bytes], answers: list[bytes]) -> None:
    read = [types.BatchGetDocumentsResponse.deserialize(each) for each in answers]
    bill.reads += sum(1 for each in read if "found" in each or each.missing)


def _query(bill: Bill, _sent: list[bytes], answers: list[bytes]) -> None:
    read = [types.RunQueryResponse.deserialize(each) for each in answers]
    bill.reads += max(1, sum(1 for each in read if "document" in each))


_COUNTERS = {"Commit": _commit, "BatchGetDocuments": _get, "RunQuery": _query}
