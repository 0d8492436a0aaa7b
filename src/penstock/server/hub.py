"""The hub: hands what connections send to the broker, carries out the effects that the broker returns, and keeps time.

The broker itself never waits, and has neither sockets nor timers: it takes events (`connect`, `receive`, `tick`,
`resume`) and returns effects. The hub is the loop around it, in one thread: it lets sessions take turns, sends frames,
passes appends to the group commit, blocking work to threads and schema work to worker processes, and gives their
outcomes back to the broker. It also decides when a session is read: not while its publishes wait for the disk, while
consumers that it publishes to are behind, or while the buffer budget has no room.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from penstock.broker.access.policy import ANONYMOUS, AccessPolicy, Principal
from penstock.broker.base.effects import (
    AdjustBacklog,
    Append,
    AppendAtomically,
    Close,
    Effect,
    RunInThread,
    RunRegistryProcedure,
    Send,
    ValidatePayloads,
)
from penstock.broker.broker import Broker
from penstock.core.errors import PenstockError, QuotaExceeded, ServiceUnavailable, Unauthorized
from penstock.core.limits import WireLimits
from penstock.protocol.batch_reader import Scratch
from penstock.protocol.frames import FrameLimits
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure, Result
from penstock.server.background.registry_tasks import RegistryTasks, resolved
from penstock.server.background.threads import ThreadPool
from penstock.server.resources.buffer_budget import BufferBudget
from penstock.server.resources.read_budget import ReadBudget
from penstock.server.session import NO_SESSIONS, UNAUTHENTICATED_MESSAGES_MAX, Session
from penstock.server.transport import Transport
from penstock.storage.log.group_commit import GroupCommit, PendingAppend

_LOG: Final = logging.getLogger(__name__)
_SLICE_SECONDS: Final = 0.01
"""The time slice in seconds for the messages of one connection. It is short, so that a connection whose read is full of
slow messages delays the others little."""
_SLICE_SECONDS_MIN: Final = 0.0005
"""The shortest time slice in seconds. Connections that are busy at the same time divide `_SLICE_SECONDS` among them, so
that a round of all takes no longer than for one."""
_GOODBYE_SECONDS: Final = 0.05  # for the last frames to be read, before connections are aborted
_CLOSING_SECONDS: Final = 1.0
"""The seconds for the last frames, which say why the connection ends, to reach the client. If the output queue has not
become shorter by then, the connection is aborted."""
_CLOSING_CHECKS: Final = 10
"""The most times that this wait is repeated for a client that reads, but slowly. Then its connection is aborted too."""


_BACKGROUND_EFFECTS: Final = (
    Append,
    RunInThread,
    ValidatePayloads,
    RunRegistryProcedure,
    AdjustBacklog,
    AppendAtomically,
)
"""The effects that take place in the background: in the writer, a thread or a worker process. `AdjustBacklog` only
counts bytes that wait there."""


class Hub:
    """The event loop around one broker: its sessions, its timer and its work in the background."""

    def __init__(
        self, broker: Broker, limits: WireLimits, now_ms: Callable[[], int], writer: GroupCommit | None = None
    ) -> None:
        """Create the hub, and start its timer. `now_ms` is a clock that only goes forward. `writer` makes blocks
        durable; without it, appends raise `ServiceUnavailable`. The owner of the writer must call `committed` with each
        finished group, in any thread."""
        self.broker = broker
        self.limits = limits
        self.now_ms = now_ms
        self.frame_limits = FrameLimits(limits.payload_bytes_max, limits.request_timeout_ms_max, limits.block_bytes_max)
        self.scratch = Scratch()
        self.unauthenticated_scratch = Scratch(UNAUTHENTICATED_MESSAGES_MAX)
        """The scratch buffer for frames of connections that have not authenticated yet. It is small, because these may
        send only few messages."""
        self.unstored_bytes = 0
        """The bytes of all blocks that were submitted to the writer and have no outcome yet."""
        self.read_budget = ReadBudget()
        self.queued_high_bytes = max(limits.output_bytes_max // 8, 1)
        self._sessions: dict[str, Session] = {}
        self._busy_sessions = 0
        """The number of sessions that wait for a further turn, because their messages did not fit into the last one."""

        self._loop = asyncio.get_running_loop()
        self.buffers = BufferBudget(
            limits.held_bytes_max,
            sessions=self.sessions,
            end=self._end_for_flood,
            resume=self._resume_session,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._writer = writer
        self._appends: dict[PendingAppend, Append] = {}
        self._threads = ThreadPool(self._background_done)
        self._registry_tasks = RegistryTasks(self._threads, self._background_done, now_ms)
        self._arm()  # time passes also while nobody is connected

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> list[Session]:
        """Return the sessions that are connected now."""
        return list(self._sessions.values())

    @property
    def held_bytes(self) -> int:
        """The bytes held for all connections: incomplete messages, reads that wait for their turn, and output that
        waits to be sent."""
        return self.buffers.used_bytes + self.read_budget.waiting_bytes

    # connections

    def connect(
        self, transport: Transport, address: str, *, principal: Principal = ANONYMOUS, surface: str = "tcp"
    ) -> Session | None:
        """Open a session and greet the client. Returns the session, or None if the broker refused the connection; then
        the client was sent the reason and the transport is closed. `surface` names the transport."""
        try:
            client, effects = self.broker.connect(address, self.now_ms(), principal=principal, surface=surface)
        except ServiceUnavailable as error:
            transport.write(self.broker.error_frame(error))
            transport.close(error)
            return None
        session = Session(self, transport, client)
        self._sessions[client.id] = session
        self.apply(effects)
        return session

    def disconnect(self, session: Session, reason: str) -> None:
        session.ending = True
        self._sessions.pop(session.client.id, None)
        self.buffers.close(session)
        session.drop_reads()
        self.apply(self.broker.disconnect(session.client, self.now_ms(), reason))
        self.release(session)
        self._stop_waiting(session)

    def finish(self, session: Session, reason: str) -> None:
        """Close a session whose client has gone or has finished sending. Queued output is still sent, to a client that
        still reads. Does nothing if the session is ending already."""
        if not session.ending:
            self.disconnect(session, reason)
            session.transport.close(ServiceUnavailable(reason))

    def end(self, session: Session, reason: PenstockError) -> None:
        """Close a session whose last frame has told the client the reason. Queued output is sent for a limited time,
        then the connection is aborted. Does nothing if the session is ending already."""
        if not session.ending:
            self.disconnect(session, reason.message)
            session.transport.close(reason)
            self._abort_later(session.transport, _CLOSING_CHECKS)

    def _abort_later(self, transport: Transport, checks: int) -> None:
        self._loop.call_later(_CLOSING_SECONDS, self._abort_if_stuck, transport, transport.queued_bytes(), checks)

    def _abort_if_stuck(self, transport: Transport, before: int, checks: int) -> None:
        """Abort the transport, or check again later if its queue has become shorter since the last check (`before`) and
        `checks` are left. The reason is the last frame in the queue, so it is worth waiting for."""
        if checks > 1 and 0 < transport.queued_bytes() < before:
            self._abort_later(transport, checks - 1)
        else:
            transport.abort()

    # messages

    def received(self, session: Session, data: bytes) -> None:
        session.pending_reads.append(data)
        if session.turn is None:
            self._run_turn(session)

    def _run_turn(self, session: Session) -> None:
        """Handle messages of the session for one time slice. If messages remain, a further turn is scheduled, or the
        session is suspended until its backlog is smaller."""
        try:
            slice_seconds = max(_SLICE_SECONDS / (1 + self._busy_sessions), _SLICE_SECONDS_MIN)
            slow = self._take_turn(session, time.monotonic() + slice_seconds)
        except Exception:
            _LOG.exception("unhandled error in a message of a client", extra={"client": session.client.id})
            self._end_with_error(session, PenstockError("The broker failed on this message; closing the connection"))
            return
        if session.ending:
            return
        if session.busy and session.is_backlogged:
            session.suspended = True  # until some of its background work is done
        elif session.busy:
            self._schedule_turn(session)
        elif session.lost_reason is not None:
            self.finish(session, session.lost_reason)
            return
        if slow:
            self._wait_for_slow_consumers(session, slow)
        self.update_reading(session)

    def _schedule_turn(self, session: Session) -> None:
        self._busy_sessions += 1
        self._loop.call_soon(self._run_scheduled_turn, session)

    def _run_scheduled_turn(self, session: Session) -> None:
        self._busy_sessions -= 1
        self._run_turn(session)

    def _take_turn(self, session: Session, until: float) -> list[Session]:
        """Handle messages or batches until the time `until`, but at least one. Returns the sessions whose output queue
        passed the high-water mark because of them."""
        slow: list[Session] = []
        now = 0.0  # even with no time left, the first message is handled
        while session.busy and not session.ending and not session.is_backlogged and now <= until:
            if session.turn is None:
                if session.restricted:
                    self._lift_restrictions(session)
                data = session.pending_reads.popleft()
                session.handled_bytes = len(data)
                session.turn = self.broker.receive(session.client, session.reader.receive_data(data), self.now_ms())
            effects = next(session.turn, None)
            if effects is None:
                session.turn, session.handled_bytes = None, 0
            else:
                session.share.progressed = True
                slow += self.apply(effects, session)
                if session.restricted:
                    self._count_unauthenticated(session)
            now = time.monotonic()
        return slow

    def _count_unauthenticated(self, session: Session) -> None:
        """Count a message of a client that has not authenticated, and end the session if there were too many."""
        session.unauthenticated_messages += 1
        too_many = session.unauthenticated_messages >= UNAUTHENTICATED_MESSAGES_MAX
        if too_many and session.is_unauthenticated and not session.ending:
            asked = "none of them said who you are: authenticate first; closing the connection"
            self._end_for_flood(session, Unauthorized(f"{UNAUTHENTICATED_MESSAGES_MAX} messages, and {asked}"))

    def _lift_restrictions(self, session: Session) -> None:
        """If the session has authenticated, replace its strict limits by the ordinary ones."""
        if session.client.principal is not ANONYMOUS:
            session.restricted = False
            self.buffers.mark_authenticated(session.share)
            session.reader.widen(self.frame_limits, self.scratch)

    def _resume_session(self, session: Session) -> None:
        """Continue a session after some of its background work is done, or after room became free: schedule a turn if
        it was suspended, and update whether it is read."""
        if session.suspended and not session.is_backlogged:
            session.suspended = False
            self._schedule_turn(session)
        self.update_reading(session)

    def update_reading(self, session: Session) -> None:
        """Pause or resume reading the connection. It is not read while any of these holds: it has reads that were not
        handled; its backlog is too large; it publishes to consumers that are behind; there is no room for the rest of
        its message."""
        session.measure()
        if not session.ending:
            session.share.paused_to_drain = self.buffers.must_drain_first(session.share)
            if session.busy or session.waits_for or session.is_backlogged or session.share.waits_for_room:
                session.transport.pause_reading()
            else:
                session.transport.resume_reading()

    def apply(self, effects: list[Effect], by: Session | None = None) -> list[Session]:
        """Carry out effects. Returns the sessions whose output queue passed the high-water mark.

        `by` is the session whose message caused the effects. Its messages are not handled while too much of its work is
        in the background.
        """
        slow: list[Session] = []
        now_ms = self.now_ms()
        for effect in effects:
            if isinstance(effect, _BACKGROUND_EFFECTS):
                self._start_background(effect, by)
                continue
            session = self._sessions.get(effect.client)
            if session is None:
                continue
            if isinstance(effect, Send):
                session.send(effect.frames, now_ms)
                if session.behind:
                    slow.append(session)
            elif isinstance(effect, Close):
                self.end(session, effect.reason)
        self._arm()
        for session in slow:
            self.end_if_too_slow(session)
        return slow

    # background work

    def _start_background(
        self,
        effect: RunInThread | Append | AppendAtomically | ValidatePayloads | RunRegistryProcedure | AdjustBacklog,
        by: Session | None,
    ) -> None:
        """Start an effect that takes place in the background, and count it against the session that it belongs to."""
        if isinstance(effect, RunInThread | ValidatePayloads | RunRegistryProcedure):
            if isinstance(effect, RunInThread):
                self._threads.submit(effect, by)
            else:
                self._registry_tasks.submit(effect, by)
            if by is not None:
                by.open_work += 1
            return
        if isinstance(effect, Append):
            self._append(effect)
        elif isinstance(effect, AppendAtomically):
            self._append_all(effect)
        elif (session := self._sessions.get(effect.client)) is not None:
            session.unstored_bytes += effect.size
            self._resume_session(session)

    def _append(self, effect: Append) -> None:
        try:
            pending = self._disk.submit(effect.log, effect.draft, wait=False)
        except PenstockError as error:
            self._loop.call_soon(self._resume_broker, effect.done, error)
        else:
            self._track_append(pending, effect)

    def _append_all(self, effect: AppendAtomically) -> None:
        """Submit all parts of an atomic append to the writer. If it refuses them, every part gets the error as its
        outcome."""
        try:
            pending_appends = self._disk.submit_all([(part.log, part.draft) for part in effect.parts], wait=False)
        except PenstockError as error:
            for part in effect.parts:
                self._loop.call_soon(self._resume_broker, part.done, error)
        else:
            for pending, part in zip(pending_appends, effect.parts, strict=True):
                self._track_append(pending, part)

    @property
    def _disk(self) -> GroupCommit:
        if self._writer is None:
            raise ServiceUnavailable("this broker keeps nothing")
        return self._writer

    def _track_append(self, pending: PendingAppend, effect: Append) -> None:
        self._appends[pending] = effect
        self.unstored_bytes += len(effect.draft.data)
        session = self._sessions.get(effect.client)
        if session is not None:
            session.unstored_bytes += len(effect.draft.data)

    def committed(self, pending_appends: Sequence[PendingAppend]) -> None:
        """Pass on the outcomes of a group of appends that is on disk, or has failed. The writer calls this in its own
        thread; the event loop handles them."""
        with suppress(RuntimeError):  # the event loop is closed: no session is left
            self._loop.call_soon_threadsafe(self._committed, pending_appends)

    def _committed(self, pending_appends: Sequence[PendingAppend]) -> None:
        results, publishers = [], set()
        for pending in pending_appends:
            effect = self._appends.pop(pending, None)
            if effect is None:
                continue
            self.unstored_bytes -= len(effect.draft.data)
            session = self._sessions.get(effect.client)
            if session is not None:
                session.unstored_bytes -= len(effect.draft.data)
                publishers.add(session)
            results.append((effect.done, pending.outcome))
        slow = self.apply(self.broker.resume_all(results, self.now_ms()))
        for session in publishers:
            if slow:
                self._wait_for_slow_consumers(session, slow)
            self._resume_session(session)

    def _background_done(
        self, work: RunInThread | ValidatePayloads | RunRegistryProcedure, by: Session | None, outcome: Any
    ) -> None:
        if by is not None:
            by.open_work -= 1
            self._resume_session(by)
        self._resume_broker(work.done, outcome)

    def _resume_broker(self, done: Callable[[Any], list[Effect]], outcome: Any) -> None:
        self.apply(self.broker.resume(done, outcome, self.now_ms()))

    # requests that do not come through a session

    @property
    def registry(self) -> Registry:
        if self.broker.durable is None:
            raise ServiceUnavailable("this broker keeps nothing")
        return self.broker.durable.registry

    @property
    def access(self) -> AccessPolicy:
        return self.broker.access

    async def ask(self, topic: str, fields: dict[str, Any], principal: Principal) -> Any:
        """Send a request to a system topic for a client without a session, and return the answer. Raises the error with
        which the broker refuses."""
        answered: asyncio.Future[Any] = self._loop.create_future()

        def waits() -> bool:
            return not answered.cancelled()

        self.apply(self.broker.ask(topic, fields, partial(resolved, answered), self.now_ms(), principal, waits))
        outcome = await answered
        if isinstance(outcome, PenstockError):
            raise outcome
        return msgspec.json.decode(outcome) if isinstance(outcome, bytes) else outcome

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure of the registry, and return its result. Raises the error that ended it."""
        return await self._registry_tasks.run(procedure)

    # slow consumers

    def end_if_too_slow(self, session: Session) -> None:
        """End a session if its output queue is over the limit."""
        if session.ending or session.transport.queued_bytes() <= self.limits.output_bytes_max:
            return
        error = QuotaExceeded(
            f"Too slow: more than {self.limits.output_bytes_max} bytes are waiting to be read; closing the connection",
            output_bytes_max=self.limits.output_bytes_max,
        )
        self._end_with_error(session, error)

    def _end_with_error(self, session: Session, error: PenstockError) -> None:
        self.apply([self.broker.closing_error(session.client, error), Close(session.client.id, error)])

    def _end_for_flood(self, session: Session, error: PenstockError) -> None:
        """End a session because it takes up resources that others need, and count that in the metric `flood.ended`."""
        self.broker.metrics.add("flood.ended")
        self._end_with_error(session, error)

    def _wait_for_slow_consumers(self, publisher: Session, slow: list[Session]) -> None:
        """Stop reading a publisher until the consumers in `slow` have caught up, or until `output_wait_ms` is over.
        Only consumers that still read are waited for."""
        now_ms = self.now_ms()
        blocking = {session for session in slow if session.worth_waiting_for(now_ms)}
        if not blocking or publisher.ending:
            return
        publisher.waits_for = publisher.waits_for | blocking
        for session in blocking:
            session.waiters = session.waiters | {publisher}
        if publisher.timer is None:
            wait = self.limits.output_wait_ms / 1000
            publisher.timer = self._loop.call_later(wait, self._give_up_waiting, publisher)

    def _give_up_waiting(self, publisher: Session) -> None:
        """Read the publisher again, because its time for waiting is over: one time for all consumers together. Those
        that are still behind are marked as stalled, so that nobody waits for them until they have caught up."""
        for session in publisher.waits_for:
            session.stalled = session.behind
        self._stop_waiting(publisher)

    def release(self, session: Session) -> None:
        """End the waiting of publishers for this session. Those that wait for no other session are read again."""
        waiters, session.waiters = session.waiters, NO_SESSIONS
        for publisher in waiters:
            publisher.waits_for = publisher.waits_for - {session}
            if not publisher.waits_for:
                self._stop_waiting(publisher)

    def _stop_waiting(self, publisher: Session) -> None:
        if publisher.timer is not None:
            publisher.timer.cancel()
            publisher.timer = None
        for session in publisher.waits_for:
            session.waiters = session.waiters - {publisher}
        publisher.waits_for = NO_SESSIONS
        self.update_reading(publisher)

    # time

    def _arm(self) -> None:
        """Schedule `_tick` for the time at which the broker next has something to do."""
        due_ms = self.broker.next_due_ms()
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._loop.call_later(max(0, due_ms - self.now_ms()) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.apply(self.broker.tick(self.now_ms()))

    # the end

    async def drain(self, grace_ms: int) -> None:
        """Stop the broker in order: tell clients, let open requests finish, close sessions and send their queued
        output, then end background work and save what is not saved. Waits for requests and output at most `grace_ms` in
        all."""
        until = time.monotonic() + grace_ms / 1000
        self.apply(self.broker.drain(self.now_ms(), grace_ms))
        while time.monotonic() < until and not self.broker.idle:
            await asyncio.sleep(0.01)
        self.apply(self.broker.abandon_requests(self.now_ms()))
        await self._close_all(until)
        await self._registry_tasks.close()
        self._threads.close()
        try:
            self.broker.close()
        except PenstockError as error:
            _LOG.error("changes could not be saved while stopping", extra={"error": error.message})
        if self._timer is not None:
            self._timer.cancel()

    async def _close_all(self, until: float) -> None:
        stopping = ServiceUnavailable("The broker is stopping")
        transports = [session.transport for session in self._sessions.values()]
        for session in list(self._sessions.values()):
            self.disconnect(session, stopping.message)
            session.transport.close(stopping)
        while time.monotonic() < until and any(transport.queued_bytes() for transport in transports):
            await asyncio.sleep(0.01)
        await asyncio.sleep(_GOODBYE_SECONDS)
        for transport in transports:
            transport.abort()
