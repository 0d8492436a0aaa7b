"""The hub: sessions on one side, the broker on the other. Feeds it what arrives, does what it wants, keeps time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from penstock.broker.access.policy import ANONYMOUS, Access, Principal
from penstock.broker.base.effects import Append, AppendAll, Close, Consult, Effect, Held, Inspect, Send, Work
from penstock.broker.broker import Broker
from penstock.core.errors import PenstockError, QuotaExceeded, ServiceUnavailable, Unauthorized
from penstock.core.limits import WireLimits
from penstock.protocol.batch_reader import Scratch
from penstock.protocol.frames import FrameLimits
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure, Result
from penstock.server.background.registry_tasks import Consultants, settled
from penstock.server.background.threads import Workers
from penstock.server.resources.buffer_budget import Holdings
from penstock.server.resources.read_budget import ReadBudget
from penstock.server.session import NOBODY, UNKNOWN_MESSAGES_MAX, Session
from penstock.server.transport import Stream
from penstock.storage.log.group_commit import GroupCommit, PendingAppend

_LOG: Final = logging.getLogger(__name__)
_SLICE_SECONDS: Final = 0.01
"""For the messages of one connection at a time, so that a read full of slow ones makes nobody wait."""
_SLICE_SECONDS_MIN: Final = 0.0005
"""Of many that are busy at once, for each: they share one slice, so that all others wait no longer for them."""
_GOODBYE_SECONDS: Final = 0.05  # for the last of it to be read, before connections are cut
_LAST_WORD_SECONDS: Final = 1.0
"""For the reason to reach a client that has stopped reading; then the connection is cut."""
_LAST_WORD_LOOKS: Final = 10
"""After so many of them that of a client is cut, too, which is slow and reads on."""


_ELSEWHERE: Final = (Append, Work, Inspect, Consult, Held, AppendAll)
"""Effects that wait for the disk, or for an examination, or tell of what does."""


class Hub:
    """All sessions of one broker, on one event loop."""

    def __init__(
        self, broker: Broker, limits: WireLimits, now_ms: Callable[[], int], writer: GroupCommit | None = None
    ) -> None:
        """`writer` makes blocks durable; its groups are to be told to `committed`, in whatever thread."""
        self.broker = broker
        self.limits = limits
        self.now_ms = now_ms
        self.frame_limits = FrameLimits(limits.payload_bytes_max, limits.request_timeout_ms_max, limits.block_bytes_max)
        self.scratch = Scratch()
        self.small_scratch = Scratch(UNKNOWN_MESSAGES_MAX)
        """For connections that have yet to say who they are: little is held of each."""
        self.unstored_bytes = 0
        """Of all connections, on the way to the disk."""
        self.reads = ReadBudget()
        self.queued_high_bytes = max(limits.output_bytes_max // 8, 1)
        self._sessions: dict[str, Session] = {}
        self._crowd = 0
        """Sessions that have more to be handled than fitted into their last turn."""

        self._loop = asyncio.get_running_loop()
        self.holdings = Holdings(
            limits.held_bytes_max,
            sessions=self.sessions,
            end=self._end_for_others,
            go_on=self.read_or_not,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._writer = writer
        self._appends: dict[PendingAppend, Append] = {}
        self._workers = Workers(self._worked)
        self._consultants = Consultants(self._workers, self._worked, now_ms)
        self._arm()  # time passes also where nobody connects

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> list[Session]:
        """Those that are connected now."""
        return list(self._sessions.values())

    @property
    def held_bytes(self) -> int:
        """Messages that have come in part, reads that wait for their turn, and what waits to be sent."""
        return self.holdings.used_bytes + self.reads.waiting_bytes

    # connections

    def connect(
        self, stream: Stream, address: str, *, principal: Principal = ANONYMOUS, surface: str = "tcp"
    ) -> Session | None:
        """A new session, which has been greeted; None if it was refused, told so, and closed."""
        try:
            client, effects = self.broker.connect(address, self.now_ms(), principal=principal, surface=surface)
        except ServiceUnavailable as error:
            stream.write(self.broker.refusal(error))
            stream.close(error)
            return None
        session = Session(self, stream, client)
        self._sessions[client.id] = session
        self.apply(effects)
        return session

    def disconnect(self, session: Session, reason: str) -> None:
        session.ending = True
        self._sessions.pop(session.client.id, None)
        self.holdings.close(session)
        session.drop_reads()
        self.apply(self.broker.disconnect(session.client, self.now_ms(), reason))
        self.release(session)
        self._stop_waiting(session)

    def leave(self, session: Session, reason: str) -> None:
        """It goes by itself. What is queued for it is sent if it still listens."""
        if not session.ending:
            self.disconnect(session, reason)
            session.stream.close(ServiceUnavailable(reason))

    def end(self, session: Session, reason: PenstockError) -> None:
        """It has been told why. What is queued is sent, for a while."""
        if not session.ending:
            self.disconnect(session, reason.message)
            session.stream.close(reason)
            self._cut_later(session.stream, _LAST_WORD_LOOKS)

    def _cut_later(self, stream: Stream, looks: int) -> None:
        self._loop.call_later(_LAST_WORD_SECONDS, self._cut, stream, stream.queued_bytes(), looks)

    def _cut(self, stream: Stream, before: int, looks: int) -> None:
        """Not yet where it still takes what was queued: the reason comes last."""
        if looks > 1 and 0 < stream.queued_bytes() < before:
            self._cut_later(stream, looks - 1)
        else:
            stream.abort()

    # messages

    def received(self, session: Session, data: bytes) -> None:
        session.arrived.append(data)
        if session.turn is None:
            self._work(session)

    def _work(self, session: Session) -> None:
        """Handle what it sent, for a little while; then it is the turn of others."""
        try:
            slice_seconds = max(_SLICE_SECONDS / (1 + self._crowd), _SLICE_SECONDS_MIN)
            slow = self._take_turn(session, time.monotonic() + slice_seconds)
        except Exception:
            _LOG.exception("a defect in the broker", extra={"client": session.client.id})
            self._end_saying(session, PenstockError("The broker failed on this message; closing the connection"))
            return
        if session.ending:
            return
        if session.busy and session.has_enough:
            session.stopped = True  # until some of it is done
        elif session.busy:
            self._work_later(session)
        elif session.leaving is not None:
            self.leave(session, session.leaving)
            return
        if slow:
            self._wait_for_slow(session, slow)
        self.read_or_not(session)

    def _work_later(self, session: Session) -> None:
        self._crowd += 1
        self._loop.call_soon(self._work_again, session)

    def _work_again(self, session: Session) -> None:
        self._crowd -= 1
        self._work(session)

    def _take_turn(self, session: Session, until: float) -> list[Session]:
        """One message, or one batch, after the other; those that fell behind by it."""
        slow: list[Session] = []
        now = 0.0  # whatever the time is, something is done
        while session.busy and not session.ending and not session.has_enough and now <= until:
            if session.turn is None:
                if session.narrow:
                    self._widen(session)
                data = session.arrived.popleft()
                session.turn_bytes = len(data)
                session.turn = self.broker.receive(session.client, session.reader.receive_data(data), self.now_ms())
            effects = next(session.turn, None)
            if effects is None:
                session.turn, session.turn_bytes = None, 0
            else:
                session.holding.moved = True
                slow += self.apply(effects, session)
                if session.narrow:
                    self._count_unknown(session)
            now = time.monotonic()
        return slow

    def _count_unknown(self, session: Session) -> None:
        """End a connection that says many things, and not who it is."""
        session.unknown_messages += 1
        if session.is_stranger and session.unknown_messages >= UNKNOWN_MESSAGES_MAX and not session.ending:
            asked = "none of them said who you are: authenticate first; closing the connection"
            self._end_for_others(session, Unauthorized(f"{UNKNOWN_MESSAGES_MAX} messages, and {asked}"))

    def _widen(self, session: Session) -> None:
        """Once it is known who it is, it may say as much as everybody."""
        if session.client.principal is not ANONYMOUS:
            session.narrow = False
            self.holdings.known(session.holding)
            session.reader.widen(self.frame_limits, self.scratch)

    def _go_on(self, session: Session) -> None:
        """Some of what it waits for is done."""
        if session.stopped and not session.has_enough:
            session.stopped = False
            self._work_later(session)
        self.read_or_not(session)

    def read_or_not(self, session: Session) -> None:
        """Nothing more is read from whoever has sent enough for now, sends to those who are behind, or has to wait for
        room for the rest of a message."""
        session.measure()
        if not session.ending:
            if session.busy or session.waits_for or session.has_enough or session.holding.waits:
                session.stream.pause_reading()
            else:
                session.stream.resume_reading()

    def apply(self, effects: list[Effect], by: Session | None = None) -> list[Session]:
        """Do what the broker wants; those that now have too much queued. `by`: whose message brought it about."""
        slow: list[Session] = []
        now_ms = self.now_ms()
        for effect in effects:
            if isinstance(effect, _ELSEWHERE):
                self._hand_over(effect, by)
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

    # the disk

    def _hand_over(self, effect: Work | Append | AppendAll | Inspect | Consult | Held, by: Session | None) -> None:
        """What waits for the disk, or for an examination, and who is to send no more while it does."""
        if isinstance(effect, Work | Inspect | Consult):
            if isinstance(effect, Work):
                self._workers.submit(effect, by)
            else:
                self._consultants.submit(effect, by)
            if by is not None:
                by.open_work += 1
            return
        if isinstance(effect, Append):
            self._append(effect)
        elif isinstance(effect, AppendAll):
            self._append_all(effect)
        elif (session := self._sessions.get(effect.client)) is not None:
            session.unstored_bytes += effect.size
            self._go_on(session)

    def _append(self, effect: Append) -> None:
        try:
            ticket = self._disk.submit(effect.log, effect.draft, wait=False)
        except PenstockError as error:
            self._loop.call_soon(self._resume, effect.done, error)
        else:
            self._submitted(ticket, effect)

    def _append_all(self, effect: AppendAll) -> None:
        """All of them wait for the disk then, or none does and each is told why."""
        try:
            tickets = self._disk.submit_all([(each.log, each.draft) for each in effect.parts], wait=False)
        except PenstockError as error:
            for each in effect.parts:
                self._loop.call_soon(self._resume, each.done, error)
        else:
            for ticket, each in zip(tickets, effect.parts, strict=True):
                self._submitted(ticket, each)

    @property
    def _disk(self) -> GroupCommit:
        if self._writer is None:
            raise ServiceUnavailable("this broker keeps nothing")
        return self._writer

    def _submitted(self, ticket: PendingAppend, effect: Append) -> None:
        self._appends[ticket] = effect
        self.unstored_bytes += len(effect.draft.data)
        session = self._sessions.get(effect.client)
        if session is not None:
            session.unstored_bytes += len(effect.draft.data)

    def committed(self, tickets: Sequence[PendingAppend]) -> None:
        """A group is on disk, or failed. Called by the writer, in its thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._committed, tickets)

    def _committed(self, tickets: Sequence[PendingAppend]) -> None:
        results, publishers = [], set()
        for ticket in tickets:
            effect = self._appends.pop(ticket, None)
            if effect is None:
                continue
            self.unstored_bytes -= len(effect.draft.data)
            session = self._sessions.get(effect.client)
            if session is not None:
                session.unstored_bytes -= len(effect.draft.data)
                publishers.add(session)
            results.append((effect.done, ticket.outcome))
        slow = self.apply(self.broker.resume_all(results, self.now_ms()))
        for session in publishers:
            if slow:
                self._wait_for_slow(session, slow)
            self._go_on(session)

    def _worked(self, work: Work | Inspect | Consult, by: Session | None, outcome: Any) -> None:
        if by is not None:
            by.open_work -= 1
            self._go_on(by)
        self._resume(work.done, outcome)

    def _resume(self, done: Callable[[Any], list[Effect]], outcome: Any) -> None:
        self.apply(self.broker.resume(done, outcome, self.now_ms()))

    # what comes in another way than through a connection

    @property
    def registry(self) -> Registry:
        if self.broker.durable is None:
            raise ServiceUnavailable("this broker keeps nothing")
        return self.broker.durable.registry

    @property
    def access(self) -> Access:
        return self.broker.access

    async def ask(self, topic: str, fields: dict[str, Any], principal: Principal) -> Any:
        """The answer of a system topic. Raises what that is refused with."""
        answered: asyncio.Future[Any] = self._loop.create_future()

        def waits() -> bool:
            return not answered.cancelled()

        self.apply(self.broker.ask(topic, fields, partial(settled, answered), self.now_ms(), principal, waits))
        outcome = await answered
        if isinstance(outcome, PenstockError):
            raise outcome
        return msgspec.json.decode(outcome) if isinstance(outcome, bytes) else outcome

    async def run(self, procedure: Procedure[Result]) -> Result:
        """Carry out a procedure of the registry."""
        return await self._consultants.run(procedure)

    # slow ones

    def end_if_too_slow(self, session: Session) -> None:
        """End a session for which more is queued than may be."""
        if session.ending or session.stream.queued_bytes() <= self.limits.output_bytes_max:
            return
        error = QuotaExceeded(
            f"Too slow: more than {self.limits.output_bytes_max} bytes are waiting to be read; closing the connection",
            output_bytes_max=self.limits.output_bytes_max,
        )
        self._end_saying(session, error)

    def _end_saying(self, session: Session, error: PenstockError) -> None:
        self.apply([self.broker.last_word(session.client, error), Close(session.client.id, error)])

    def _end_for_others(self, session: Session, error: PenstockError) -> None:
        """It holds what others need."""
        self.broker.metrics.add("flood.ended")
        self._end_saying(session, error)

    def _wait_for_slow(self, publisher: Session, slow: list[Session]) -> None:
        """Read no more from a publisher until those it sends to have caught up, or have had their time."""
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
        """They had their time, all together."""
        for session in publisher.waits_for:
            session.stalled = session.behind
        self._stop_waiting(publisher)

    def release(self, session: Session) -> None:
        """Nobody need wait for this one any longer."""
        waiters, session.waiters = session.waiters, NOBODY
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
        publisher.waits_for = NOBODY
        self.read_or_not(publisher)

    # time

    def _arm(self) -> None:
        """Have `tick` called when the broker next has something to do."""
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
        """Tell everybody, let open requests finish, send what is queued, close. Not longer than the grace time."""
        until = time.monotonic() + grace_ms / 1000
        self.apply(self.broker.drain(self.now_ms(), grace_ms))
        while time.monotonic() < until and not self.broker.idle:
            await asyncio.sleep(0.01)
        self.apply(self.broker.abandon(self.now_ms()))
        await self._close_all(until)
        await self._consultants.close()
        self._workers.close()
        try:
            self.broker.close()
        except PenstockError as error:
            _LOG.error("what has changed could not be saved", extra={"error": error.message})
        if self._timer is not None:
            self._timer.cancel()

    async def _close_all(self, until: float) -> None:
        stopping = ServiceUnavailable("The broker is stopping")
        streams = [session.stream for session in self._sessions.values()]
        for session in list(self._sessions.values()):
            self.disconnect(session, stopping.message)
            session.stream.close(stopping)
        while time.monotonic() < until and any(stream.queued_bytes() for stream in streams):
            await asyncio.sleep(0.01)
        await asyncio.sleep(_GOODBYE_SECONDS)
        for stream in streams:
            stream.abort()
