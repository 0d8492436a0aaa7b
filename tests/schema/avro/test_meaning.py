"""The meaning of compatibility: if we call a schema readable, another implementation reads the data; if not, a value
proves it. The other implementations are `fastavro`, which reads, and `avro`, which has a checker of its own."""

from __future__ import annotations

import json
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.schema.avro.kit import parsed, reread, verdict, written
from tests.schema.avro.strategies import evolutions, schemas, values


@given(st.data(), evolutions())
@settings(max_examples=150)
def test_what_is_called_readable_is_read(data: st.DataObject, pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    problems = verdict(reader, writer)
    event("readable" if not problems else "not readable")
    assume(not problems)
    payload = written(writer, data.draw(values(writer)))
    reread(payload, writer, reader)


@given(evolutions(logicals=False))
@settings(max_examples=150)
def test_the_checker_of_the_avro_package_says_the_same(pair: tuple[Any, Any]) -> None:
    writer, reader = (avro.schema.parse(json.dumps(tree)) for tree in pair)
    checker: Any = ReaderWriterCompatibilityChecker
    result = checker().get_compatibility(reader, writer)
    assert (result.compatibility is SchemaCompatibilityType.compatible) == (not verdict(pair[1], pair[0]))


@given(schemas())
@settings(max_examples=60)
def test_every_schema_reads_what_it_wrote(tree: Any) -> None:
    assert parsed(tree).compatibility_problems(parsed(tree)) == []
