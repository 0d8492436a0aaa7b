"""Targets of schemas on any machine, as ratios taken in one run. `./dev bench` runs this."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benches.report import report
from tests.server.provoked import Question, block_of, questions

from penstock.bench import Figure, schema
from penstock.core.errors import PenstockError
from penstock.core.schemas import Definition, SchemaKind
from penstock.schema.steps import ParseSchema
from penstock.server.background.schema_workers import SchemaWorkers

TARGETS = {
    "durable publish, 200 B JSON in blocks, enforced with payloads": 0.5,
    "durable publish, 200 B JSON in blocks, enforced": 0.9,
    "registry, GET by id": 0.5,
    "schema by id, from the client's cache": 100.0,
    "slowest answer to a hostile schema": 1.0,
    "slowest answer to a hostile payload": 1.0,
    "slowest answer to a small schema that means a huge one": 1.0,
}
_ANSWER_MS = 200.0
_NUMBERS = Definition(SchemaKind.JSON, '{"type":"integer"}')


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    messages, requests, rounds = (20_000, 400, 1) if quick else (1_000_000, 20_000, 3)
    yield from schema.measure(folder, messages=messages, requests=requests, rounds=rounds)
    yield from _slowest(asyncio.run(_answered()))


async def _answered() -> list[tuple[Question, float]]:
    """Return every hostile question with the ms of its answer."""
    schema_workers = SchemaWorkers()
    await schema_workers.parse(ParseSchema(_NUMBERS))  # both workers start
    await schema_workers.validate(_NUMBERS, block_of(b"1"))
    answered = [(question, await _ms(question, schema_workers)) for question in questions()]
    await schema_workers.close()
    return answered


async def _ms(question: Question, schema_workers: SchemaWorkers) -> float:
    began = time.perf_counter()
    with suppress(PenstockError):
        await question.ask(schema_workers)
    return (time.perf_counter() - began) * 1000


def _slowest(answered: list[tuple[Question, float]]) -> Iterator[Figure]:
    slowest: dict[str, tuple[float, str]] = {}
    for question, ms in answered:
        slowest[question.about] = max(slowest.get(question.about, (0.0, "")), (ms, question.name))
    for about, (ms, name) in slowest.items():
        yield Figure(
            name=f"slowest answer to {about} ({name})",
            value=ms,
            unit="ms",
            reference="allowed",
            reference_value=_ANSWER_MS,
            ratio=_ANSWER_MS / ms,
        )


def main(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        return report("benches/schema.py", measure(Path(scratch), quick=quick), TARGETS, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
