"""Attributes of dead letters: where a message came from and why it died, and its attributes when it is sent back.

Pure functions. The broker writes and redrives dead letters with them; its clients know the same names.
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
"""The number of times the message was sent back to its topic."""

DEATH_ATTRIBUTES: Final = (ORIGINAL_TOPIC, ORIGINAL_SUBSCRIPTION, ORIGINAL_OFFSET, ORIGINAL_PRODUCER, ATTEMPT, REASON)
"""Attributes that a message gets as a dead letter, and loses when it is sent back."""

REDRIVE_SUBSCRIPTION: Final = "redrive"
"""The broker's own subscription of a dead letter topic: the messages that it has not acked are still to be dealt
with."""
DEAD_LETTER_PRODUCER_PREFIX: Final = "dead-letters "
"""The start of the names of producers that store dead letters."""
REDRIVE_PRODUCER_PREFIX: Final = "redrive "
"""The start of the names of producers that send dead letters back."""
REDRIVES_MAX: Final = 3
"""Redrives of a message by default: a message that fails after three will fail again."""

REDRIVES_CEILING: Final = 1_000
"""The most redrives that a request may allow: more is a loop that nobody watches."""

REDRIVE: Final = "redrive"
REDRIVEN_TOO_OFTEN: Final = "left: sent back too often"
FOREIGN_LETTER: Final = "left: not a dead letter of this topic"

_PARTITION: Final = re.compile(r"-part-[0-9]+$", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def original_topic_of(attributes: Mapping[str, str]) -> str:
    """Return the topic that the dead letter came from, without its partition; empty if the attributes do not name
    it."""
    return _PARTITION.sub("", attributes.get(ORIGINAL_TOPIC, ""))


def is_redrive_subscription(topic: TopicName, subscription: str) -> bool:
    """Return True for the broker's own subscription, which records the dead letters that have been dealt with."""
    return subscription == REDRIVE_SUBSCRIPTION and topic.holds_dead_letters


def redrive_count(attributes: Mapping[str, str]) -> int:
    """Return the number of times that the message was sent back before; 0 if the attribute is missing or no number."""
    text = attributes.get(REDRIVES, "0")
    return int(text) if _COUNT.fullmatch(text) else 0


def redriven_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a dead letter when it is sent back: its original ones, and a redrive count that is one
    higher."""
    original = {name: value for name, value in attributes.items() if name not in DEATH_ATTRIBUTES and name != REDRIVES}
    # First, because the last attributes are dropped where a dead letter has too many.
    return {REDRIVES: str(redrive_count(attributes) + 1)} | original


def redrive_verdict(attributes: Mapping[str, str], original: TopicName, redrives_max: int) -> str:
    """Return the decision about a dead letter in a redrive to the topic `original`.

    `REDRIVE`: send it back. `REDRIVEN_TOO_OFTEN`: leave it, since it was sent back `redrives_max` times.
    `FOREIGN_LETTER`: leave it, since it came from another topic.
    """
    if original_topic_of(attributes).lower() != str(original):
        return FOREIGN_LETTER
    return REDRIVEN_TOO_OFTEN if redrive_count(attributes) >= redrives_max else REDRIVE


def redrive_producer_name(letters: TopicName, partition: int, partitions: int, created_ms: int) -> str:
    """Return the producer name for redrives of one partition of the dead letter topic `letters`; nothing else uses it.

    Each message is numbered by its offset there, so that none is stored twice. The name contains `created_ms`, the time
    at which the dead letter topic was created: a topic that was deleted and created again counts its offsets from 0.
    """
    name = f"/{letters.namespace}/{letters.partition(partition, partitions)} {created_ms}"
    return (
        REDRIVE_PRODUCER_PREFIX + name[-(PRODUCER_NAME_BYTES_MAX - len(REDRIVE_PRODUCER_PREFIX)) :]
    )  # its end is what tells it from others


def topic_and_dead_letter_topic(name: TopicName) -> tuple[TopicName, TopicName]:
    """Return a topic and its dead letter topic; `name` may be either. Raises `InvalidRequest` for a dead letter topic
    without an original."""
    if not name.namespace.endswith(DEAD_LETTER_SUFFIX):
        return name, name.dead_letters
    original = name.namespace.removesuffix(DEAD_LETTER_SUFFIX)
    if not original:
        raise InvalidRequest(f"{name} is the dead letters of no topic")
    return TopicName(original, name.topic), name
