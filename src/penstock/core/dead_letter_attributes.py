"""Dead letters: the attributes that say where one came from, and why; and what one becomes when it is sent back.

Pure. The broker buries and redrives them; whoever asks it to knows the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.core.limits import PRODUCER_NAME_BYTES_MAX
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName

ORIGINAL_TOPIC: Final = "x-original-topic"
ORIGINAL_SUBSCRIPTION: Final = "x-original-subscription"
ORIGINAL_OFFSET: Final = "x-original-topic-offset"
ORIGINAL_PRODUCER: Final = "x-original-producer-id"
ATTEMPT: Final = "x-delivery-attempt"
REASON: Final = "x-failure-reason"
REDRIVES: Final = "x-redrive-count"
"""How often it was sent back to where it came from."""

DEATH_ATTRIBUTES: Final = (ORIGINAL_TOPIC, ORIGINAL_SUBSCRIPTION, ORIGINAL_OFFSET, ORIGINAL_PRODUCER, ATTEMPT, REASON)
"""What a message gets when it dies, and loses when it is sent back."""

REDRIVE_SUBSCRIPTION: Final = "redrive"
"""Of a topic of dead letters: what it has not settled is left to be dealt with."""
DEAD_LETTER_PRODUCER_PREFIX: Final = "dead-letters "
"""How names of producers begin that store dead letters."""
REDRIVE_PRODUCER_PREFIX: Final = "redrive "
"""How names of producers begin that send letters back."""
REDRIVES_MAX: Final = 3
"""So often a message is sent back unless told otherwise: whatever fails it then is not going to go away."""

REDRIVES_CEILING: Final = 1_000
"""So often it is sent back at most, whatever somebody asks for: more is a loop that nobody looks at."""

REDRIVE: Final = "redrive"
REDRIVEN_TOO_OFTEN: Final = "left: sent back too often"
FOREIGN_LETTER: Final = "left: not a dead letter of this topic"

_PARTITION: Final = re.compile(r"-part-[0-9]+$", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def original_topic_of(attributes: Mapping[str, str]) -> str:
    """Without the partition; empty if it does not say."""
    return _PARTITION.sub("", attributes.get(ORIGINAL_TOPIC, ""))


def is_redrive_subscription(topic: TopicName, subscription: str) -> bool:
    """Whether a subscription is the broker's own: it keeps which dead letters were dealt with; nobody consumes it."""
    return subscription == REDRIVE_SUBSCRIPTION and topic.holds_dead_letters


def redrive_count(attributes: Mapping[str, str]) -> int:
    """How often it was sent back before."""
    given = attributes.get(REDRIVES, "0")
    return int(given) if _COUNT.fullmatch(given) else 0


def redriven_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Those of the message that is made of it: all that it was, and how often it was sent back."""
    kept = {name: value for name, value in attributes.items() if name not in DEATH_ATTRIBUTES and name != REDRIVES}
    # First: where a dead letter has more attributes than it may have, the last of them go.
    return {REDRIVES: str(redrive_count(attributes) + 1)} | kept


def redrive_verdict(attributes: Mapping[str, str], original: TopicName, redrives_max: int) -> str:
    """What becomes of a dead letter in a redrive to this topic."""
    if original_topic_of(attributes).lower() != str(original):
        return FOREIGN_LETTER
    return REDRIVEN_TOO_OFTEN if redrive_count(attributes) >= redrives_max else REDRIVE


def redrive_producer_name(letters: TopicName, partition: int, partitions: int, created_ms: int) -> str:
    """The producer in whose name the letters of a partition are sent back: always the same, and nobody else.

    Each is numbered by its offset, so that none is stored twice. The time is in the name since a topic that was deleted
    and made again counts its offsets from 0 once more.
    """
    name = f"/{letters.namespace}/{letters.partition(partition, partitions)} {created_ms}"
    return (
        REDRIVE_PRODUCER_PREFIX + name[-(PRODUCER_NAME_BYTES_MAX - len(REDRIVE_PRODUCER_PREFIX)) :]
    )  # its end is what tells it from others


def topic_and_dead_letter_topic(name: TopicName) -> tuple[TopicName, TopicName]:
    """Of the topic, and of its dead letters; either may be given."""
    if not name.namespace.endswith(DEAD_LETTER_SUFFIX):
        return name, name.dead_letters
    original = name.namespace.removesuffix(DEAD_LETTER_SUFFIX)
    if not original:
        raise InvalidRequest(f"{name} is the dead letters of no topic")
    return TopicName(original, name.topic), name
