"""Pipelines for tests: texts of TOML, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.spark.pipeline.file.model import Pipeline, Sink, Source, Step
from penstock.spark.pipeline.file.parsing import PipelineInvalid, load, parse
from penstock.storage.store import Store

FILE: Final = Path("/pipelines/shop.toml")
HEAD: Final = '[pipeline]\npath = "data"\nwarehouse = "lake"\nbroker = "127.0.0.1:7450"\n'
ORDERS: Final = '[sources.orders]\ntopic = "orders"\n'
SHOW: Final = '[sinks.show]\nfrom = "orders"\nconsole = true\n'


def read(*parts: str, variables: Mapping[str, str] | None = None) -> Pipeline:
    return parse("\n".join(parts), FILE, variables or {})


def problems(*parts: str, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the problems of a pipeline of these parts."""
    with pytest.raises(PipelineInvalid) as caught:
        read(*parts, variables=variables)
    return caught.value.problems


def source(text: str, *, head: str = HEAD) -> Source:
    """The one source, of what stands below `[sources.one]`."""
    sink = '[sinks.show]\nfrom = "s"\nconsole = true\n'
    made = read(head, ORDERS, f"[sources.one]\n{text}", '[steps.s]\nsql = "select 1 from one, orders"', sink)
    return next(each for each in made.sources if each.name == "one")


def step(text: str) -> Step:
    """The one step, of what stands below `[steps.one]`."""
    (made,) = read(HEAD, ORDERS, f"[steps.one]\n{text}", '[sinks.show]\nfrom = "one"\nconsole = true\n').steps
    return made


def sink(text: str, *, head: str = HEAD) -> Sink:
    """The one sink, of what stands below `[sinks.one]`."""
    (made,) = read(head, ORDERS, f'[sinks.one]\nfrom = "orders"\n{text}').sinks
    return made


# pipelines over real topics


def write_topic(data: Path, payloads: Iterable[str], *, topic: str = "orders") -> None:
    """Append messages to a topic, which is created if it is not there."""
    name = TopicName.parse(topic)
    with Store.open(data, create=True) as store:
        if name not in {each.name for each in store.catalog.list_topics()}:
            store.create_topic(name)
        store.append(name, Draft.of(Message(payload=text.encode(), type="t", key=b"k") for text in payloads))


def orders(first: int, count: int) -> Iterator[str]:
    return (json.dumps({"id": number, "cents": 10 * number}) for number in range(first, first + count))


class Directory:
    """A pipeline's file and what lies beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"

    def pipeline(self, *parts: str, name: str = "shop") -> Pipeline:
        file = self.root / f"{name}.toml"
        file.write_text("\n".join(parts))
        return load(file, {})

    def rows(self, name: str = "out") -> list[dict[str, Any]]:
        """Return the rows that a sink wrote as JSON files; Spark's own metadata says which files count."""
        found: dict[str, None] = {}
        for log in sorted((self.root / name / "_spark_metadata").glob("[0-9]*"), key=lambda path: path.name):
            if not log.name.endswith(".crc"):
                found |= dict.fromkeys(json.loads(line)["path"] for line in log.read_text().splitlines()[1:])
        paths = [Path(path.removeprefix("file://")) for path in found]
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


TYPED: Final = """
[steps.typed]
sql = "select o.* from (select from_json(cast(value as string), 'id long, cents long') as o from orders)"
"""
STREAM: Final = '[pipeline]\npath = "data"\nwarehouse = "lake"\n[sources.orders]\ntopic = "orders"\n'
