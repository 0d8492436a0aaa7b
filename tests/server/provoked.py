"""Every hostile schema and payload, as jobs of the schema workers: for tests of time and of memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from tests.schema.hostile import FAN_OUT, PAYLOADS, SCHEMAS

from penstock.core.schemas import Definition
from penstock.record.block import Block, Draft, parse_block
from penstock.record.message import Message
from penstock.schema.steps import CheckCompatibility, ParseSchema, SchemaPair
from penstock.server.background.schema_workers import SchemaWorkers

Ask = Callable[[SchemaWorkers], Awaitable[object]]


class Question(NamedTuple):
    about: str
    name: str
    ask: Ask


def block_of(*payloads: bytes) -> Block:
    return parse_block(Draft.of(Message(payload=payload) for payload in payloads).data, verify=False)


def questions() -> Iterator[Question]:
    for name, schema in SCHEMAS.items():
        yield Question("a hostile schema", name, _examine(Definition(schema.kind, schema.text)))
    for name, payload in PAYLOADS.items():
        yield Question("a hostile payload", name, _validate(Definition(payload.kind, payload.schema), payload.payload))
    for name, small in FAN_OUT.items():
        definition = Definition(small.kind, small.text)
        for ask in (_examine(definition), _compare(definition), _validate(definition, b'"a"', b"1")):
            yield Question("a small schema that means a huge one", name, ask)


def _examine(definition: Definition) -> Ask:
    return lambda made: made.parse(ParseSchema(definition))


def _compare(definition: Definition) -> Ask:
    return lambda made: made.check_compatibility(CheckCompatibility((SchemaPair(definition, definition),)))


def _validate(definition: Definition, *payloads: bytes) -> Ask:
    return lambda made: made.validate(definition, block_of(*payloads))
