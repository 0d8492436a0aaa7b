"""Topic names and patterns. A name from outside becomes a path only after it has been parsed here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Final

from penstock.core.errors import TopicNotSupported
from penstock.core.limits import NAMESPACE_CHARS_MAX, PARTITIONS_MAX, TOPIC_CHARS_MAX, TOPIC_LEVELS_MAX

DEFAULT_NAMESPACE: Final = "default"
SYSTEM: Final = "system"
DEAD_LETTER_SUFFIX: Final = "-dlq"

_BELOW_SYSTEM: Final = f"{SYSTEM}."
_LEVEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*", re.ASCII)
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ALIKE: Final = 0.6
"""The least likeness, on a scale from 0 to 1, at which one name is suggested in place of another."""
_ONE_LEVEL: Final = "+"
_THE_REST: Final = "#"
# One bound for every partition: a topic must not get its first ten directories and be refused the eleventh.
_PARTITIONED_CHARS_MAX: Final = TOPIC_CHARS_MAX - len(f"-part-{PARTITIONS_MAX - 1}")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic name `/{namespace}/{topic}`, in lower case. Every instance is valid: the constructor raises
    `TopicNotSupported`."""

    namespace: str
    topic: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespace", _namespace(self.namespace))
        levels = _levels(self.topic, f"topic {self.topic!r}")
        for level in levels:
            _check_level(level, f"topic {self.topic!r}")
        object.__setattr__(self, "topic", self.topic.lower())

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse `orders.created` (in the default namespace) or `/shop/orders.created`. Raises `TopicNotSupported`."""
        return _parsed(text) if len(text) <= TOPIC_CHARS_MAX else cls(*_split(text))

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.topic}"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(self.topic.split("."))

    @property
    def is_system(self) -> bool:
        """True for a name such as `system.topic.create`: the broker answers these itself. `system` alone is an ordinary
        topic."""
        return self.topic.startswith(_BELOW_SYSTEM)

    @property
    def holds_dead_letters(self) -> bool:
        return self.namespace.endswith(DEAD_LETTER_SUFFIX)

    @property
    def dead_letters(self) -> TopicName:
        return TopicName(self.namespace + DEAD_LETTER_SUFFIX, self.topic)

    def partition(self, index: int, partitions: int) -> str:
        """Return the name of a partition, for message ids and paths: the topic's own if it has only one partition.

        Raises `TopicNotSupported` for an impossible number, or a name that is too long with it.
        """
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise TopicNotSupported(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
        if not 0 <= index < partitions:
            raise TopicNotSupported(f"{self} has partitions 0 to {partitions - 1}, not {index}")
        if partitions == 1:
            return self.topic
        if len(self.topic) > _PARTITIONED_CHARS_MAX:
            raise TopicNotSupported(
                f"the name of a partitioned topic has at most {_PARTITIONED_CHARS_MAX} characters,"
                f" not {len(self.topic)}"
            )
        return f"{self.topic}-part-{index}"


@dataclass(frozen=True, slots=True, order=True)
class TopicPattern:
    """A pattern for topic names: `+` stands for exactly one level, and `#` at the end for one or more levels."""

    namespace: str
    pattern: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespace", _namespace(self.namespace))
        what = f"pattern {self.pattern!r}"
        levels = _levels(self.pattern, what)
        for number, level in enumerate(levels, 1):
            if level == _THE_REST and number != len(levels):
                raise TopicNotSupported(f"{what}: '#' stands only at the end")
            if level not in (_ONE_LEVEL, _THE_REST):
                _check_level(level, what)
        object.__setattr__(self, "pattern", self.pattern.lower())

    @classmethod
    def parse(cls, text: str) -> TopicPattern:
        return cls(*_split(text))

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.pattern}"

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(self.pattern.split("."))

    @property
    def is_system(self) -> bool:
        """True if the pattern can only match topics of the broker itself."""
        return self.pattern.startswith(_BELOW_SYSTEM)

    def matches(self, name: TopicName) -> bool:
        if self.namespace != name.namespace:
            return False
        mine, theirs = self.levels, name.levels
        if mine[-1] == _THE_REST:
            mine = mine[:-1]
            if len(theirs) <= len(mine):
                return False
            theirs = theirs[: len(mine)]
        if len(mine) != len(theirs):
            return False
        return all(level in (_ONE_LEVEL, there) for level, there in zip(mine, theirs, strict=True))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> TopicName:
    """Parse a name. Cached, since the same few topics are named again and again; invalid names are not cached."""
    return TopicName(*_split(text))


def _split(text: str) -> tuple[str, str]:
    if not text.startswith("/"):
        return DEFAULT_NAMESPACE, text
    namespace, slash, topic = text[1:].partition("/")
    if not slash:
        raise TopicNotSupported(f"{text!r} is not a full topic name: expected /namespace/topic", given=text)
    return namespace, topic


def _namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise TopicNotSupported(f"namespace {text!r}: letters, digits, '_' and '-' only, and at least one", given=text)
    namespace = text.lower()
    most = NAMESPACE_CHARS_MAX + (len(DEAD_LETTER_SUFFIX) if namespace.endswith(DEAD_LETTER_SUFFIX) else 0)
    if len(namespace) > most:
        raise TopicNotSupported(f"a namespace has at most {most} characters, not {len(namespace)}")
    return namespace


def _levels(text: str, what: str) -> list[str]:
    if len(text) > TOPIC_CHARS_MAX:
        raise TopicNotSupported(f"a topic has at most {TOPIC_CHARS_MAX} characters, not {len(text)}")
    levels = text.split(".")
    if len(levels) > TOPIC_LEVELS_MAX:
        raise TopicNotSupported(f"{what}: at most {TOPIC_LEVELS_MAX} levels, not {len(levels)}")
    return levels


def _check_level(level: str, what: str) -> None:
    if not _LEVEL.fullmatch(level):
        raise TopicNotSupported(f"{what}: level {level!r} must be a letter followed by letters and digits")


def nearest(name: TopicName, known: Iterable[TopicName]) -> TopicName | None:
    """Return the known name that is most like `name`, which somebody may have misspelt; None if none is like it.

    The levels at the start that both names have in common are not compared: with them, names of one family would all
    seem alike.
    """
    alike = {candidate: _likeness(name, candidate) for candidate in known}
    return max(alike, key=lambda candidate: alike[candidate], default=None) if any(alike.values()) else None


def _likeness(one: TopicName, other: TopicName) -> float:
    topic, namespace = _ratio(*_apart(one.levels, other.levels)), _ratio(one.namespace, other.namespace)
    return topic + namespace if topic >= _ALIKE and (topic == 1 or namespace >= _ALIKE) else 0.0


def _apart(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Return both names without the levels that they begin with in common; unchanged if that would leave nothing of
    one."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    if same in (len(one), len(other)):
        same = 0
    return ".".join(one[same:]), ".".join(other[same:])


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
