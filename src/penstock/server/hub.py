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
"""The time slice in which messages of one connection are handled, so that a read full of slow ones delays others
little."""
_SLICE_SECONDS_MIN: Final = 0.0005
"""The shortest time slice: connections that are busy at once share one slice, so that the others wait no longer for
them."""
_GOODBYE_SECONDS: Final = 0.05  # for the last frames to be read, before connections are aborted
_CLOSING_SECONDS: Final = 1.0
"""The time for the reason to reach a client that has stopped reading; then its connection is aborted."""
_CLOSING_CHECKS: Final = 10
"""The number of such waits for a client that is slow but still reads; after them its connection is aborted, too."""


_BACKGROUND_EFFECTS: Final = (
    Append,
    RunInThread,
    ValidatePayloads,
    RunRegistryProcedure,
    AdjustBacklog,
    AppendAtomically,
)
"""Effects that wait for the disk or for validation, or count bytes that do."""


class Hub:
    """The sessions of one broker, on one event loop."""

    def __init__(
        self, broker: Broker, limits: WireLimits, now_ms: Callable[[], int], writer: GroupCommit | None = None
    ) -> None:
        """Start keeping time. `writer` makes blocks durable; its owner calls `committed` with each finished group, in
        any thread."""
        self.broker = broker
        self.limits = limits
        self.now_ms = now_ms
        self.frame_limits = FrameLimits(limits.payload_bytes_max, limits.request_timeout_ms_max, limits.block_bytes_max)
        self.scratch = Scratch()
        self.unauthenticated_scratch = Scratch(UNAUTHENTICATED_MESSAGES_MAX)
        """The small scratch buffer of connections that have not authenticated yet: little of theirs is held."""
        self.unstored_bytes = 0
        """Bytes of all connections on their way to the disk."""
        self.read_budget = ReadBudget()
        self.queued_high_bytes = max(limits.output_bytes_max // 8, 1)
        self._sessions: dict[str, Session] = {}
        self._busy_sessions = 0
        """The number of sessions with more to handle than fitted into their last turn."""

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
        """Bytes of incomplete messages, of reads that wait for their turn, and of output that waits to be sent."""
        return self.buffers.used_bytes + self.read_budget.waiting_bytes

    # connections

    def connect(
        self, transport: Transport, address: str, *, principal: Principal = ANONYMOUS, surface: str = "tcp"
    ) -> Session | None:
        """Open a session and greet the client. Returns None if the broker refused it; then the transport is closed."""
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
        """Close a session whose client left. Queued output is still sent if the client listens."""
        if not session.ending:
            self.disconnect(session, reason)
            session.transport.close(ServiceUnavailable(reason))

    def end(self, session: Session, reason: PenstockError) -> None:
        """Close a session after its last frame gave the reason. Queued output is sent, for a limited time."""
        if not session.ending:
            self.disconnect(session, reason.message)
            session.transport.close(reason)
            self._abort_later(session.transport, _CLOSING_CHECKS)

    def _abort_later(self, transport: Transport, checks: int) -> None:
        self._loop.call_later(_CLOSING_SECONDS, self._abort_if_stuck, transport, transport.queued_bytes(), checks)

    def _abort_if_stuck(self, transport: Transport, before: int, checks: int) -> None:
        """Abort the transport, unless it still drains and has checks left: the reason is the last in its queue."""
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
        """Handle messages of the session for one time slice; the rest waits for its next turn."""
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
        """Handle messages or batches until the slice ends. Returns the sessions that fell behind because of them."""
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
        """End a connection that sends too many messages without authenticating."""
        session.unauthenticated_messages += 1
        too_many = session.unauthenticated_messages >= UNAUTHENTICATED_MESSAGES_MAX
        if too_many and session.is_unauthenticated and not session.ending:
            asked = "none of them said who you are: authenticate first; closing the connection"
            self._end_for_flood(session, Unauthorized(f"{UNAUTHENTICATED_MESSAGES_MAX} messages, and {asked}"))

    def _lift_restrictions(self, session: Session) -> None:
        """Give a session that has authenticated the ordinary limits."""
        if session.client.principal is not ANONYMOUS:
            session.restricted = False
            self.buffers.mark_authenticated(session.share)
            session.reader.widen(self.frame_limits, self.scratch)

    def _resume_session(self, session: Session) -> None:
        """Continue a session after some of its background work was done."""
        if session.suspended and not session.is_backlogged:
            session.suspended = False
            self._schedule_turn(session)
        self.update_reading(session)

    def update_reading(self, session: Session) -> None:
        """Pause or resume reading: a session is not read while it has unhandled reads or a backlog, publishes to
        consumers that are behind, or waits for room for the rest of a message."""
        session.measure()
        if not session.ending:
            session.share.paused_to_drain = self.buffers.must_drain_first(session.share)
            if session.busy or session.waits_for or session.is_backlogged or session.share.waits_for_room:
                session.transport.pause_reading()
            else:
                session.transport.resume_reading()

    def apply(self, effects: list[Effect], by: Session | None = None) -> list[Session]:
        """Carry out effects. Returns the sessions whose output queue passed the high-water mark.

        `by`: the session whose message caused the effects; it is held back while too much of its work is in the
        background.
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
        """Start what waits for the disk, a thread or a worker process, and count it against its session."""
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
        """Submit all parts of an atomic append; if that fails, every part gets the error."""
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
        """Report a group that is on disk, or has failed. Called by the writer, in its own thread."""
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
        """Return the answer of a system topic. Raises the error with which the broker refuses."""
        answered: asyncio.Future[Any] = self._loop.create_future()

        def waits() -> bool:
            return not answered.cancelled()

        self.apply(self.broker.ask(topic, fields, partial(resolved, answered), self.now_ms(), principal, waits))
        outcome = await answered
        if isinstance(outcome, PenstockError):
            raise outcome
        return msgspec.json.decode(outcome) if isinstance(outcome, bytes) else outcome

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure of the registry."""
        return await self._registry_tasks.run(procedure)

    # slow consumers

    def end_if_too_slow(self, session: Session) -> None:
        """End a session whose output queue is over the limit."""
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
        """End a session that holds what others need, and count it as a flood."""
        self.broker.metrics.add("flood.ended")
        self._end_with_error(session, error)

    def _wait_for_slow_consumers(self, publisher: Session, slow: list[Session]) -> None:
        """Stop reading a publisher until the consumers that it sends to have caught up, or their time is over."""
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
        """Read the publisher again: the consumers that it waited for had their time, all together."""
        for session in publisher.waits_for:
            session.stalled = session.behind
        self._stop_waiting(publisher)

    def release(self, session: Session) -> None:
        """Let publishers no longer wait for this session."""
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
        """Stop in order: announce it, let open requests finish, send queued output, close. Takes at most the grace
        time."""
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
