"""Feeds: everything that topics hold behind a message id, for whoever reads on and on and acknowledges nothing.

What is shown, and in which order, is decided here; how it is written and to whom it is sent is not. Blocks of several
logs become durable together, in groups, and all ids of a group are known to be spent when it is: the `frontier` is the
time in the newest of them. Nothing with an older id can still come, in any log. So whoever has read everything up to
an id that is not behind the frontier has missed nothing, and that one id is all a reader has to remember.
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
"""Read as one feed: each is asked now and then whether it has anything new."""
MATCHER_CHARS_MAX: Final = 256
"""A regular expression that somebody typed; it is tried on every type of a block."""
_MATCHER_BYTES_MAX: Final = 256 * KIB
"""Of memory for one regular expression: some thousand states."""
_MATCHERS_KNOWN: Final = 512
"""Expressions that need not be compiled again: as many as streams that may be open, and 128 MiB at the worst."""
_CHOICES_KNOWN: Final = 512
"""Patterns of topics whose logs need not be looked for again: 16 MiB if each has as many logs as one may have."""
_NOTHING_YET: Final = 0
"""The end where nothing is stored: before every message, and unlike the beginning a place that one can come back to."""
_WILD: Final = frozenset("+#")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """What somebody reads. The same is read once for all who want it."""

    topics: TopicPattern = EVERYTHING
    partition: int | None = None
    matcher: str = ""
    """A regular expression that is found in the type of every message."""

    @property
    def topic(self) -> TopicName | None:
        """The one topic that is meant; None for a pattern."""
        if _WILD.isdisjoint(self.topics.levels):
            return TopicName(self.topics.namespace, self.topics.pattern)
        return None


class FeedSelection(NamedTuple):
    """The logs that are meant, as of one revision of the topics, and how far all of them are known.

    Both are of one moment: a topic that comes to be later has nothing up to `until`.
    """

    revision: int
    sources: tuple[LogSource, ...]
    accept: Accept | None
    until: int
    """The frontier. What lies behind it may be in logs that are not among these."""


class FeedStart(NamedTuple):
    """Where somebody begins: behind a time of ids."""

    after: int
    resumed: bool = False
    """Somebody has read up to there before, and is to be told what is gone since."""
    ahead: bool = False
    """What was named lies ahead of everything that is stored."""


@dataclass(frozen=True, slots=True)
class _FeedWaiter:
    request: FeedRequest
    reply: Reply


class Feeds:
    """All of one broker."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._revision = -1
        self._named: dict[TopicName, list[LogSource]] = {}
        self._chosen: dict[tuple[TopicPattern, int | None], tuple[LogSource, ...]] = {}
        """The one that was asked for last is the last."""
        self._waiting: dict[int, _FeedWaiter] = {}
        self._numbers = count()
        self.frontier = newest_ticks([log for topic in topics for log in topic.logs])
        """Everything up to here is stored, or never will be."""

    # what is asked for

    def select(self, request: FeedRequest) -> FeedSelection:
        """Raises `TopicNotSupported`, `InvalidRequest` or `QuotaExceeded` for what cannot be read."""
        if self._revision != self._topics.revision:
            self._revision = self._topics.revision
            self._named.clear()
            self._chosen.clear()
        return FeedSelection(self._revision, self._sources(request), _compile_cached(request.matcher), self.frontier)

    def _sources(self, request: FeedRequest) -> tuple[LogSource, ...]:
        """The same for all who want the same topics, whatever else they want."""
        asked = request.topics, request.partition
        found = self._chosen.pop(asked, None)
        if found is None:
            found = tuple(self._find(request))
        self._chosen[asked] = found
        if len(self._chosen) > _CHOICES_KNOWN:
            del self._chosen[next(iter(self._chosen))]
        return found

    def _find(self, request: FeedRequest) -> list[LogSource]:
        found = [
            source
            for topic in self._matching_topics(request)
            for source in self._sources_of_topic(topic, request.partition)
        ]
        if len(found) > LOGS_MAX:
            raise QuotaExceeded(
                f"{len(found)} partitions of topics match, and at most {LOGS_MAX} are read together: name fewer topics",
                logs_max=LOGS_MAX,
            )
        return found

    def _matching_topics(self, request: FeedRequest) -> list[TopicState]:
        """One topic that may yet come to be by itself is waited for."""
        one = request.topic
        if one is None:
            return [each for each in self._topics if each.is_durable and request.topics.matches(each.name)]
        topic = self._topics.get(one)
        if topic is None and self._topics.auto_create is AutoCreate.RELIABLE:
            return []
        topic = topic or self._topics.find(one)
        if not topic.is_durable:
            raise TopicNotSupported(f"{one} is a live topic: it keeps nothing to read", topic=str(one))
        return [topic]

    def _sources_of_topic(self, topic: TopicState, partition: int | None) -> list[LogSource]:
        """Every log has one source, however many read it."""
        if partition is not None and not 0 <= partition < len(topic.logs):
            raise InvalidRequest(
                f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {partition}", field="partition"
            )
        found = self._named.get(topic.name)
        if found is None:
            found = self._named[topic.name] = _sources_of(topic)
        return found if partition is None else [found[partition]]

    def start(self, request: FeedRequest, place: Position, *, resumed: bool, reply: Reply) -> list[Effect]:
        """Tell where somebody begins. `resumed`: the place is the id of the last message that was read."""
        end = max(self.frontier, _NOTHING_YET)
        if resumed and isinstance(place, AtId):
            after = ticks_of_id(place.id)
            return reply(FeedStart(min(after, end), resumed=True, ahead=after > end))
        if isinstance(place, AtOffset):
            (log,) = self._only_log(request)
            return [RunInThread(partial(_start_before, log, int(place.offset), end), reply, read_only=True)]
        return reply(FeedStart(_ticks_before(place, end)))

    def _only_log(self, request: FeedRequest) -> list[Log]:
        logs = [source.log for source in self.select(request).sources]
        if len(logs) != 1:
            raise InvalidRequest(
                f"from=OFFSET is a place in one partition, and {request.topics} has {len(logs)}: name a topic and a"
                " partition, or begin at a time or an id",
                field="from",
            )
        return logs

    # what comes

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
        """Tell what comes behind `after`, as `written` puts it: in another thread, both."""

        def read() -> Any:
            sources, accept = selection.sources, selection.accept
            return written(
                merge_logs(sources, positions, after=after, until=selection.until, accept=accept, resumed=resumed)
            )

        return [RunInThread(read, reply, read_only=True)]

    def wait(self, request: FeedRequest, reply: Reply) -> Callable[[], None]:
        """Have `reply` called once when there may be something new; what is returned ends the wait."""
        number = next(self._numbers)
        self._waiting[number] = _FeedWaiter(request, reply)
        return partial(self._stop_waiting, number)

    def _stop_waiting(self, number: int) -> None:
        self._waiting.pop(number, None)

    def log_grown(self, stored: Sequence[tuple[TopicState, Sequence[AppendResult]]]) -> list[Effect]:
        """Blocks are on disk: all of a group, and none of a group that is not whole."""
        for _, appended in stored:
            last = appended[-1]
            self.frontier = max(self.frontier, last.first_ticks + last.records - 1)
        if not self._waiting:
            return []
        names = {topic.name for topic, _ in stored}
        concerned: dict[TopicPattern, bool] = {}
        effects: list[Effect] = []
        for number, each in list(self._waiting.items()):
            topics = each.request.topics
            if topics not in concerned:
                concerned[topics] = any(topics.matches(name) for name in names)
            if concerned[topics] and self._waiting.pop(number, None) is not None:
                effects += each.reply(None)
        return effects


def _sources_of(topic: TopicState) -> list[LogSource]:
    name, partitions = topic.name, topic.catalog_topic.partitions
    return [
        LogSource(log, name, number, f"/{name.namespace}/{name.partition(number, partitions)}")
        for number, log in enumerate(topic.logs)
    ]


def compile_matcher(matcher: str) -> Accept | None:
    """What a regular expression accepts, in time linear in the text; None where everything is wanted.

    Raises `InvalidRequest` for what is no expression, or takes too much memory.
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
    """Why it takes no expression, which it says in bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


_compile_cached: Final = lru_cache(_MATCHERS_KNOWN)(compile_matcher)


def _ticks_before(place: Position, frontier: int) -> int:
    match place:
        case Latest():
            return frontier
        case AtTime(unix_ms):
            # No id is newer than the last that there can be: whoever names a later time waits for that.
            return max(-1, min(ticks_of_unix_ms(unix_ms), TICKS_MAX) - 1)
        case AtId(value):
            return ticks_of_id(value) - 1
        case Earliest() | AtOffset():
            return -1


def _start_before(log: Log, offset: int, frontier: int) -> FeedStart:
    """Behind the message before an offset. In another thread. Raises `OffsetOutOfRange` for one that is not there."""
    if offset == int(log.next_offset):
        return FeedStart(frontier)
    chunk = log.read(offset, bytes_max=at.MESSAGE_RECORD_BYTES_MIN)
    if not len(chunk.block):
        raise OffsetOutOfRange(f"offset {offset} cannot be read: what lies there is damaged", offset=offset)
    return FeedStart(ticks_of_high_word(int(chunk.block.columns[0, at.ID_HIGH])) - 1)


def cursor_text(after: int) -> str:
    """What a reader has to remember of where it is: an id, and what was read has no newer one."""
    return format_id(cursor_id(after))
