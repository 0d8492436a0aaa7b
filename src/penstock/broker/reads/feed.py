"""Feeds: all messages after a message id, for readers that follow topics and acknowledge nothing.

This module decides which messages a feed has, and their order; other modules format and send them. Blocks of several
logs become durable in groups, whose ids are all taken by then. The `frontier` is the time in the newest of these ids:
no message with an older id can still be stored, in any log. So a reader that has read everything up to an id that is
not after the frontier has missed nothing, and needs to remember only that id.
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
"""The most logs that one feed reads: each is checked now and then for new messages."""
MATCHER_CHARS_MAX: Final = 256
"""The most characters of a regular expression for types. It is tried on every type of a block."""
_MATCHER_BYTES_MAX: Final = 256 * KIB
"""The most memory of one compiled regular expression: some thousand states."""
_MATCHERS_KEPT: Final = 512
"""The most compiled expressions in the cache: one for each stream that may be open, 128 MiB at worst."""
_SELECTIONS_KEPT: Final = 512
"""The most topic patterns whose logs are cached: 16 MiB if each has as many logs as it may have."""
_EMPTY_END: Final = 0
"""The id time at which a feed starts if nothing is stored. It is before every message. Unlike the beginning, -1, a
reader can resume from it."""
_WILD: Final = frozenset("+#")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """The topics and filter of a feed. Readers with equal requests share the reads."""

    topics: TopicPattern = EVERYTHING
    partition: int | None = None
    matcher: str = ""
    """A regular expression that must be found in the type of a message; empty for all types."""

    @property
    def topic(self) -> TopicName | None:
        """The single topic of the request; None for a pattern."""
        if _WILD.isdisjoint(self.topics.levels):
            return TopicName(self.topics.namespace, self.topics.pattern)
        return None


class FeedSelection(NamedTuple):
    """The logs that a feed reads, and `until`, the frontier when they were selected.

    A topic that is created later has no messages up to `until`, so no log is missing.
    """

    revision: int
    sources: tuple[LogSource, ...]
    accept: Accept | None
    until: int
    """The frontier. Later messages may be in logs that this selection does not have."""


class FeedStart(NamedTuple):
    """The start of a feed: it has the messages whose id time is later than `after`."""

    after: int
    resumed: bool = False
    """True if the reader has read everything up to `after` before. It is then told which messages since have been
    lost."""
    ahead: bool = False
    """True if the reader named a position later than everything that is stored."""


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
        """The logs of a request, by topics and partition. The most recently used are last."""
        self._waiting: dict[int, _FeedWaiter] = {}
        self._numbers = count()
        self.frontier = newest_ticks([log for topic in topics for log in topic.logs])
        """The id time up to which no further message can be stored."""

    # requests

    def select(self, request: FeedRequest) -> FeedSelection:
        """Return the logs of a request as they are now. Raises `TopicNotSupported`, `InvalidRequest` or
        `QuotaExceeded`."""
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            self._sources_by_topic.clear()
            self._sources_by_request.clear()
        return FeedSelection(self._revision, self._sources(request), _compile_cached(request.matcher), self.frontier)

    def _sources(self, request: FeedRequest) -> tuple[LogSource, ...]:
        """Return the logs of a request. They are cached by its topics and partition."""
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
        """Return the durable topics that match. If the request names one topic that does not exist yet, but a message
        may create it, there are none. Otherwise raises `TopicNotSupported`."""
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
        """Return the sources of all partitions of a topic, or of one. All readers share them. Raises `InvalidRequest`
        for a partition that does not exist."""
        if partition is not None and not 0 <= partition < len(topic.logs):
            raise InvalidRequest(
                f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {partition}", field="partition"
            )
        sources = self._sources_by_topic.get(topic.name)
        if sources is None:
            sources = self._sources_by_topic[topic.name] = _sources_of(topic)
        return sources if partition is None else [sources[partition]]

    def start(self, request: FeedRequest, position: Position, *, resumed: bool, reply: Reply) -> list[Effect]:
        """Reply with the `FeedStart` of a position. With `resumed`, a `position` that is an id names the last message
        that the reader has read: the feed starts after it."""
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
        """Read the messages whose id time is later than `after`, in another thread. The reply gets what `written` makes
        of them, in that thread too."""

        def read() -> Any:
            sources, accept = selection.sources, selection.accept
            return written(
                merge_logs(sources, positions, after=after, until=selection.until, accept=accept, resumed=resumed)
            )

        return [RunInThread(read, reply, read_only=True)]

    def wait(self, request: FeedRequest, reply: Reply) -> Callable[[], None]:
        """Call `reply` once, with None, when the topics of a request may have a new message. Returns a function that
        ends the wait."""
        number = next(self._numbers)
        self._waiting[number] = _FeedWaiter(request, reply)
        return partial(self._stop_waiting, number)

    def _stop_waiting(self, number: int) -> None:
        self._waiting.pop(number, None)

    def log_grown(self, stored: Sequence[tuple[TopicState, Sequence[AppendResult]]]) -> list[Effect]:
        """Advance the frontier past blocks that became durable, and wake the readers that wait for their topics. The
        blocks must be whole groups."""
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
    """Return a function that tells in linear time whether the expression is found in a text; None for an empty
    expression.

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
    """Return the reason for which RE2 rejects an expression, as text: RE2 gives it as bytes."""
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
    """Return a start from which the message at `offset` is the first of its log to be read. Reads the log, so call it
    in another thread. Raises `OffsetOutOfRange` if there is no such message."""
    if offset == int(log.next_offset):
        return FeedStart(frontier)
    chunk = log.read(offset, bytes_max=at.MESSAGE_RECORD_BYTES_MIN)
    if not len(chunk.block):
        raise OffsetOutOfRange(f"offset {offset} cannot be read: what lies there is damaged", offset=offset)
    return FeedStart(ticks_of_high_word(int(chunk.block.columns[0, at.ID_HIGH])) - 1)


def cursor_text(after: int) -> str:
    """Return the id, as text, that a reader remembers as its position. Only the time in it counts: the reader has read
    everything up to `after`."""
    return format_id(cursor_id(after))
