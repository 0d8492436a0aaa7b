"""Clicks of visitors into a topic of two partitions.

    python generate.py --data data --visitors 50

A visitor comes a few times a day and clicks some pages, seconds to minutes apart; between visits lie hours. Visitors
click at the same time, so their clicks are mixed; those of one visitor are in order. The same number gives the same.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

TOPIC: Final = "clicks"
PARTITIONS: Final = 2
BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)
PAGES: Final = ("/", "/products", "/cart", "/checkout", "/help")


@dataclass(frozen=True, slots=True, order=True)
class Click:
    at: datetime
    visitor: str
    page: str


def clicks(visitors: int, *, days: int = 1) -> list[Click]:
    """All clicks, by time; at the end one of somebody who comes a day later, which closes everybody's sessions."""
    chance = random.Random(visitors)  # noqa: S311 - no secret
    made = [click for number in range(visitors) for click in _of_visitor(f"visitor-{number}", days, chance)]
    last = BEGIN + timedelta(days=days + 1)
    return [*sorted(made), Click(last, "visitor-late", "/")]


def _of_visitor(visitor: str, days: int, chance: random.Random) -> list[Click]:
    found, at = [], BEGIN + timedelta(seconds=chance.randrange(3600))
    while at < BEGIN + timedelta(days=days):
        for _ in range(1 + chance.randrange(12)):
            found.append(Click(at, visitor, chance.choice(PAGES)))
            at += timedelta(seconds=5 + chance.randrange(600))
        at += timedelta(minutes=31 + chance.randrange(600))
    return found


def write(data: Path, given: list[Click]) -> None:
    """Every visitor's clicks go to one partition, as with a key."""
    topic = TopicName.parse(TOPIC)
    parts: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    for number, click in enumerate(given):
        text = json.dumps({"visitor": click.visitor, "page": click.page, "at": click.at.isoformat()})
        message = Message(payload=text.encode(), type="click", key=click.visitor.encode(), request_id=number)
        parts[sum(click.visitor.encode()) % PARTITIONS].append(message)
    with Store.open(data, create=True) as store:
        store.create_topic(topic, partitions=PARTITIONS)
        for partition, found in enumerate(parts):
            for start in range(0, len(found), 1000):
                store.append(topic, Draft.of(found[start : start + 1000]), partition=partition)


def main() -> None:
    options = argparse.ArgumentParser(description="Clicks of visitors into a topic of two partitions.")
    options.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="the data directory")
    options.add_argument("--visitors", type=int, default=50, help="how many")
    given = options.parse_args()
    made = clicks(given.visitors)
    write(given.data, made)
    print(f"{len(made)} clicks in {given.data}")


if __name__ == "__main__":
    main()
