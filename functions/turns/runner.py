"""The life of one owner, from its lease to the turn's terminal event."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from functions import logs
from functions.errors import (
    Gone,
    LeaseLost,
    NewerSchema,
    NotConfigured,
    StorageUnavailable,
    TurnFailed,
)
from functions.settings import Settings
from functions.turns import history, record, steps, takeover
from functions.turns.lease import Renewal
from functions.turns.ledger import Parked
from functions.turns.membership import Membership, rejoin, told_before
from functions.turns.program import Agent, Turn
from functions.turns.record import Record
from functions.turns.takeover import Taken
from functions.turns.writer import Writer
from functions.wire.events import Error, Event

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, WriteBatch


MAX_ATTEMPTS = 20
"""Owners that may come and go without a newly finished step. Then the turn ends with an error: an
agent that kills its container would be run again for ever."""
TOOLS_SECONDS = 5.0
"""A container that is about to end waits so long for what its tools return; the platform gives it
10 s for everything."""


class Owner:
    """One epoch of one turn in this process."""

    def __init__(self, turn: Record, agent: Callable[[], Agent], settings: Settings) -> None:
        """`agent` loads it, and raises NotConfigured when that cannot be."""
        self._agent = agent
        self._settings = settings
        self.writer: Writer | None = None
        self._taken: Taken | None = None
        self._membership: Membership | None = None
        self._failed = False
        self._released = False
        self._renewal: Renewal | None = None
        self.ended = threading.Event()
        """Set when its thread is through with the turn, however it ended."""
        self.fields: Mapping[str, Any] = {
            **logs.fields(),
            "turn": turn.key,
            "run": turn.run_id,
            "epoch": turn.holder.epoch,
        }

    @property
    def over(self) -> bool:
        """Whether it owns nothing any more, though its agent may not have noticed yet."""
        return self._failed or (self._taken is not None and self._taken.lease.lost)

    @property
    def gone(self) -> bool:
        """Whether the turn is not its any more, be the lease lost or given back: another owner may
        have it, and the container may end without harm to it.
        """
        return self.over or self._released

    def take_over(self, turn: Record) -> None:
        """Take the lease and run the turn again; does nothing when somebody else was faster, or
        when there is no agent to run it: that would use up one of `MAX_ATTEMPTS`.
        """
        try:
            self._agent()
            taken = takeover.take_over(turn, settings=self._settings)
        except (StorageUnavailable, NotConfigured) as error:
            logs.warning("takeover failed", code=error.code)
            taken = None
        if taken is None:
            self._failed = True
            return
        logs.bind(epoch=taken.turn.holder.epoch)
        logs.info(
            "took over",
            steps=taken.begins.boundary.steps if taken.begins else 0,
            silentSeconds=round((turn.read_at - turn.updated_at).total_seconds(), 3),
        )
        self.begin(taken)
        self.run(taken)

    def begin(self, taken: Taken) -> Writer:
        """Set up the writing end, so that readers can attach before the agent runs."""
        self._taken = taken
        turn = taken.turn
        self._renewal = Renewal(
            record.reference(turn.key), taken.lease, turn.updated_at, turn.expire_at
        )
        with logs.context(**{**self.fields, "epoch": taken.turn.holder.epoch}):
            self.writer = Writer(
                taken.turn, taken.lease, taken.begins, flush_seconds=self._settings.flush_seconds
            )
        return self.writer

    def run(self, taken: Taken) -> None:
        """Run the agent to the turn's terminal event, or until the lease is lost."""
        writer, renewal = self.writer, self._renewal
        assert writer is not None
        assert renewal is not None
        try:
            renewal.start()
            writer.start()
            self._finish(taken, writer, self._terminal_event(taken, writer))
        except LeaseLost:
            logs.info("stopped: the turn is another owner's, or released")
        except Parked:
            logs.info("the turn waits for a person")
        finally:
            renewal.stop()
            writer.close()
            flushes = writer.flushes
            logs.info("owner ended", flushes=flushes.count, **flushes.fields("flush"))

    def release(self) -> None:
        """Give the lease back (L4), once the tools that run have their outcomes or had their time.

        The renewal is stopped before that is sent: one that is under way fails after it, by its
        precondition. Never raises: what cannot be released lapses.
        """
        taken, writer, renewal = self._taken, self.writer, self._renewal
        assert taken is not None
        assert writer is not None
        assert renewal is not None
        free = {"lease": taken.lease.holder.released().to_fields()}
        with logs.context(**{**self.fields, "epoch": taken.turn.holder.epoch}):
            try:
                writer.leave(within_seconds=TOOLS_SECONDS)
                renewal.stop()
                writer.release(partial(_write_turn, record.reference(taken.turn.key), free))
            except LeaseLost:
                return  # it has ended meanwhile, or somebody else has it
            except TurnFailed:
                logs.info("not released: the turn is about to end")
                return
            except BaseException:  # noqa: BLE001 - the thread's edge: the lease lapses
                logs.error("a release broke down")
                return
            self._released = True
            logs.info("lease released")

    def _terminal_event(self, taken: Taken, writer: Writer) -> Event:
        """Run the agent; what the turn ends with. Raises LeaseLost."""
        try:
            program = self._prepare(taken, writer)
        except (TurnFailed, Gone) as error:
            return self._failure(error.code, error.message)
        except (StorageUnavailable, NewerSchema) as error:
            # Not the turn's fault, and it may pass: the next owner tries again.
            taken.lease.lose(error.code)
            raise LeaseLost from None
        try:
            writer.check()
            self._agent().play(program)
        except (LeaseLost, Parked):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever an agent raises ends its turn
            failed = writer.failure or error
            if isinstance(failed, TurnFailed):
                return self._failure(failed.code, failed.message)
            return self._failure("agent_failed", "the agent failed")
        if writer.failure is not None:
            return self._failure(writer.failure.code, writer.failure.message)
        return program.conclusion

    def _prepare(self, taken: Taken, writer: Writer) -> Turn:
        """The turn as the agent will see it.

        Raises TurnFailed, Gone, StorageUnavailable, NewerSchema.
        """
        new = taken.begins is None
        self._membership = taken.membership if new else self._rejoin(taken.turn)
        if self._membership and self._membership.history_hash != taken.turn.history_hash:
            raise Gone("a turn of this turn's session was deleted meanwhile")  # H3
        if not taken.whole:
            raise Gone("the beginning of the turn is past its retention")
        if taken.attempts > MAX_ATTEMPTS:
            raise TurnFailed(
                "no_progress", f"{MAX_ATTEMPTS} containers ended without finishing another step"
            )
        agent = self._agent()
        if not agent.can_continue(taken.turn.agent_version):
            raise TurnFailed(
                "agent_changed",
                f"the turn was begun by agent version {taken.turn.agent_version!r}, "
                f"which version {agent.version!r} cannot continue",
            )
        if taken.begins is None:  # a new turn has no steps: its first token waits for no read
            return Turn(taken.turn, writer, {}, agent.budget, self._membership)
        begun = steps.load_all(taken.turn.key, finished=taken.begins.boundary.steps)
        return Turn(taken.turn, writer, begun, agent.budget, self._membership)

    def _rejoin(self, turn: Record) -> Membership | None:
        """Find the session again. Raises Gone, StorageUnavailable, NewerSchema."""
        return rejoin(turn, session_hours=self._settings.session_hours)

    def _failure(self, code: str, message: str) -> Error:
        # The id of the request that this owner came from finds all of its lines.
        correlation_id = str(logs.fields().get("correlationId") or secrets.token_hex(16))
        logs.error("turn failed", code=code, correlationId=correlation_id)
        return Error(code, message, correlation_id)

    def _finish(self, taken: Taken, writer: Writer, event: Event) -> None:
        """Commit the terminal event, the turn's status and what it leaves in its session as one
        (H2). Raises LeaseLost.
        """
        turn = record.reference(taken.turn.key)
        for _attempt in range(2):
            status = record.ERROR if isinstance(event, Error) else record.DONE
            try:
                # The status releases the lease: only a running turn has one.
                writer.finish(
                    event,
                    also=partial(_write_turn, turn, {"status": status}),
                    spare=self._leave(taken, writer, event),
                )
            except TurnFailed as refused:
                event = self._failure(refused.code, refused.message)
            else:
                logs.info("turn ended", status=status)
                return
        taken.lease.lose("the journal refuses the terminal event")

    def _leave(
        self, taken: Taken, writer: Writer, event: Event
    ) -> Callable[[WriteBatch], None] | None:
        """Stages what the turn leaves in its session; None without one. Raises LeaseLost."""
        membership, turn = self._membership, taken.turn
        if membership is None:
            return None
        before = ""
        if isinstance(event, Error) or membership.remembers:
            return lambda batch: membership.leave(batch, None)
        if taken.begins is not None:
            try:
                before = told_before(turn, taken.begins.last)
            except StorageUnavailable as error:
                taken.lease.lose(error.code)
                raise LeaseLost from None
        prompt = turn.request.prompt
        return lambda batch: membership.leave(batch, history.exchange(prompt, before + writer.told))


def _write_turn(
    turn: DocumentReference, fields: Mapping[str, Any], batch: WriteBatch, _last: int
) -> None:
    batch.update(turn, dict(fields))
