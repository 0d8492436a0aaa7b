"""Feeds: all messages behind a message id, for readers that follow topics and acknowledge nothing.

Contents and order of a feed are decided here, its format and recipients elsewhere. Blocks of several logs become
durable together, in groups, and by then all ids of the group are spent: the `frontier` is the time in the newest of
them. No message with an older id can still be stored, in any log. So a reader that has read everything up to an id not
behind the frontier has missed nothing, and that one id is all that it has to remember.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, NamedTuple

import re2

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.context import Reply
from penstock.broker.reads.merge import (
    Accept,
    LogSource,
    MergedSlice,
    ReadPositions,
    cursor_id,
    merge_logs,
    newest_ticks,
)
from penstock.broker.topics.topics import AutoCreate, Topics, TopicState
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, QuotaExceeded, TopicNotSupported
from penstock.core.ids import TICKS_MAX, format_id, ticks_of_high_word, ticks_of_id, ticks_of_unix_ms
from penstock.core.limits import KIB, QUOTED_CHARS_MAX
from penstock.core.names import DEFAULT_NAMESPACE, TopicName, TopicPattern
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position
from penstock.record import layout as at
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log

EVERYTHING: Final = TopicPattern(DEFAULT_NAMESPACE, "#")
LOGS_MAX: Final = 4_096
"""Logs read as one feed: each is checked now and then for new messages."""
MATCHER_CHARS_MAX: Final = 256
"""The length of a regular expression for types; it is tried on every type of a block."""
_MATCHER_BYTES_MAX: Final = 256 * KIB
"""Memory of one regular expression: some thousand states."""
_MATCHERS_KEPT: Final = 512
"""Compiled expressions that are kept: as many as streams that may be open, 128 MiB at worst."""
_SELECTIONS_KEPT: Final = 512
"""Topic patterns whose logs are kept: 16 MiB if each has as many logs as it may have."""
_EMPTY_END: Final = 0
"""The end if nothing is stored: before every message and, unlike the beginning, a position that a reader can resume
from."""
_WILD: Final = frozenset("+#")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """The topics and filter of a feed. Readers with equal requests share the reads."""

    topics: TopicPattern = EVERYTHING
    partition: int | None = None
    matcher: str = ""
    """A regular expression that is searched in the type of every message; empty for all types."""

    @property
    def topic(self) -> TopicName | None:
        """The single topic of the request; None for a pattern."""
        if _WILD.isdisjoint(self.topics.levels):
            return TopicName(self.topics.namespace, self.topics.pattern)
        return None


class FeedSelection(NamedTuple):
    """The logs of a feed at one revision of the topics, and the frontier up to which all of them are known.

    Both are of the same moment: a topic that is created later has nothing up to `until`.
    """

    revision: int
    sources: tuple[LogSource, ...]
    accept: Accept | None
    until: int
    """The frontier. Messages behind it may be in logs that the selection lacks."""


class FeedStart(NamedTuple):
    """The start of a feed: behind a time of ids."""

    after: int
    resumed: bool = False
    """True if the reader has read up to there before, and is told what is lost since."""
    ahead: bool = False
    """True if the position named lies ahead of everything stored."""


@dataclass(frozen=True, slots=True)
class _FeedWaiter:
    request: FeedRequest
    reply: Reply


class Feeds:
    """All feeds of a broker."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._revision = -1
        self._sources_by_topic: dict[TopicName, list[LogSource]] = {}
        self._sources_by_request: dict[tuple[TopicPattern, int | None], tuple[LogSource, ...]] = {}
        """Logs by request, the most recently used last."""
        self._waiting: dict[int, _FeedWaiter] = {}
        self._numbers = count()
        self.frontier = newest_ticks([log for topic in topics for log in topic.logs])
        """The time up to which every message is stored, or never will be."""

    # requests

    def select(self, request: FeedRequest) -> FeedSelection:
        """Return the logs of a request. Raises `TopicNotSupported`, `InvalidRequest` or `QuotaExceeded` if they cannot
        be read."""
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            self._sources_by_topic.clear()
            self._sources_by_request.clear()
        return FeedSelection(self._revision, self._sources(request), _compile_cached(request.matcher), self.frontier)

    def _sources(self, request: FeedRequest) -> tuple[LogSource, ...]:
        """Return the logs of a request, cached by its topics and partition."""
        key = request.topics, request.partition
        sources = self._sources_by_request.pop(key, None)
        if sources is None:
            sources = tuple(self._find(request))
        self._sources_by_request[key] = sources
        if len(self._sources_by_request) > _SELECTIONS_KEPT:
            del self._sources_by_request[next(iter(self._sources_by_request))]
        return sources

    def _find(self, request: FeedRequest) -> list[LogSource]:
        sources = [
            source
            for topic in self._matching_topics(request)
            for source in self._sources_of_topic(topic, request.partition)
        ]
        if len(sources) > LOGS_MAX:
            raise QuotaExceeded(
                f"{len(sources)} partitions of topics match, and at most {LOGS_MAX} are read together: name fewer"
                " topics",
                logs_max=LOGS_MAX,
            )
        return sources

    def _matching_topics(self, request: FeedRequest) -> list[TopicState]:
        """Return the durable topics that match. A single topic that may still be created by a message is waited for."""
        name = request.topic
        if name is None:
            return [topic for topic in self._topics if topic.is_durable and request.topics.matches(topic.name)]
        topic = self._topics.get(name)
        if topic is None and self._topics.auto_create is AutoCreate.RELIABLE:
            return []
        topic = topic or self._topics.find(name)
        if not topic.is_durable:
            raise TopicNotSupported(f"{name} is a live topic: it keeps nothing to read", topic=str(name))
        return [topic]

    def _sources_of_topic(self, topic: TopicState, partition: int | None) -> list[LogSource]:
        """Return the sources of a topic or of one partition: one source per log, shared by all readers."""
        if partition is not None and not 0 <= partition < len(topic.logs):
            raise InvalidRequest(
                f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {partition}", field="partition"
            )
        sources = self._sources_by_topic.get(topic.name)
        if sources is None:
            sources = self._sources_by_topic[topic.name] = _sources_of(topic)
        return sources if partition is None else [sources[partition]]

    def start(self, request: FeedRequest, position: Position, *, resumed: bool, reply: Reply) -> list[Effect]:
        """Reply with the start of a feed. With `resumed`, `place` is the id of the last message that was read."""
        end = max(self.frontier, _EMPTY_END)
        if resumed and isinstance(position, AtId):
            after = ticks_of_id(position.id)
            return reply(FeedStart(min(after, end), resumed=True, ahead=after > end))
        if isinstance(position, AtOffset):
            (log,) = self._only_log(request)
            return [RunInThread(partial(_start_before, log, int(position.offset), end), reply, read_only=True)]
        return reply(FeedStart(_ticks_before(position, end)))

    def _only_log(self, request: FeedRequest) -> list[Log]:
        logs = [source.log for source in self.select(request).sources]
        if len(logs) != 1:
            raise InvalidRequest(
                f"from=OFFSET is a place in one partition, and {request.topics} has {len(logs)}: name a topic and a"
                " partition, or begin at a time or an id",
                field="from",
            )
        return logs

    # reads

    def fetch(
        self,
        selection: FeedSelection,
        positions: ReadPositions,
        *,
        after: int,
        resumed: bool,
        written: Callable[[MergedSlice], Any],
        reply: Reply,
    ) -> list[Effect]:
        """Reply with the messages behind `after`, formatted by `written`; both are done in another thread."""

        def read() -> Any:
            sources, accept = selection.sources, selection.accept
            return written(
                merge_logs(sources, positions, after=after, until=selection.until, accept=accept, resumed=resumed)
            )

        return [RunInThread(read, reply, read_only=True)]

    def wait(self, request: FeedRequest, reply: Reply) -> Callable[[], None]:
        """Call `reply` once when there may be something new. Returns a function that ends the wait."""
        number = next(self._numbers)
        self._waiting[number] = _FeedWaiter(request, reply)
        return partial(self._stop_waiting, number)

    def _stop_waiting(self, number: int) -> None:
        self._waiting.pop(number, None)

    def log_grown(self, stored: Sequence[tuple[TopicState, Sequence[AppendResult]]]) -> list[Effect]:
        """Move the frontier behind blocks that became durable, always whole groups, and wake the readers of their
        topics."""
        for _, appended in stored:
            last = appended[-1]
            self.frontier = max(self.frontier, last.first_ticks + last.records - 1)
        if not self._waiting:
            return []
        names = {topic.name for topic, _ in stored}
        concerned: dict[TopicPattern, bool] = {}
        effects: list[Effect] = []
        for number, waiter in list(self._waiting.items()):
            topics = waiter.request.topics
            if topics not in concerned:
                concerned[topics] = any(topics.matches(name) for name in names)
            if concerned[topics] and self._waiting.pop(number, None) is not None:
                effects += waiter.reply(None)
        return effects


def _sources_of(topic: TopicState) -> list[LogSource]:
    name, partitions = topic.name, topic.catalog_topic.partitions
    return [
        LogSource(log, name, number, f"/{name.namespace}/{name.partition(number, partitions)}")
        for number, log in enumerate(topic.logs)
    ]


def compile_matcher(matcher: str) -> Accept | None:
    """Return a function that accepts matching texts, in linear time; None for an empty expression.

    Raises `InvalidRequest` for an invalid expression, or one that takes too much memory.
    """
    if not matcher:
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MATCHER_BYTES_MAX
    if len(matcher) > MATCHER_CHARS_MAX:
        raise InvalidRequest(
            f"typeMatcher has at most {MATCHER_CHARS_MAX} characters, not {len(matcher)}", field="typeMatcher"
        )
    try:
        pattern = re2.compile(matcher, options)
    except re2.error as error:
        raise InvalidRequest(
            f"typeMatcher={matcher[:QUOTED_CHARS_MAX]!r} is no regular expression that RE2 takes: {re2_reason(error)}",
            field="typeMatcher",
        ) from None
    return lambda text: pattern.search(text) is not None


def re2_reason(error: re2.error) -> str:
    """Return why RE2 rejects an expression, which it says in bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


_compile_cached: Final = lru_cache(_MATCHERS_KEPT)(compile_matcher)


def _ticks_before(position: Position, frontier: int) -> int:
    match position:
        case Latest():
            return frontier
        case AtTime(unix_ms):
            # No id is newer than the largest that can exist: a later time waits for that one.
            return max(-1, min(ticks_of_unix_ms(unix_ms), TICKS_MAX) - 1)
        case AtId(value):
            return ticks_of_id(value) - 1
        case Earliest() | AtOffset():
            return -1


def _start_before(log: Log, offset: int, frontier: int) -> FeedStart:
    """Return the start behind the message before an offset, in another thread. Raises `OffsetOutOfRange` for a missing
    one."""
    if offset == int(log.next_offset):
        return FeedStart(frontier)
    chunk = log.read(offset, bytes_max=at.MESSAGE_RECORD_BYTES_MIN)
    if not len(chunk.block):
        raise OffsetOutOfRange(f"offset {offset} cannot be read: what lies there is damaged", offset=offset)
    return FeedStart(ticks_of_high_word(int(chunk.block.columns[0, at.ID_HIGH])) - 1)


def cursor_text(after: int) -> str:
    """Return the id that a reader remembers as its position: no message that it has read has a newer one."""
    return format_id(cursor_id(after))
