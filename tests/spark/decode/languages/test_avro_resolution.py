"""Avro: what is read of one schema by another, held against fastavro's own resolution."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.decode.kit import Shelf, avro, avro_payload, field, record, rows

INTS = st.integers(-(2**31), 2**31 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": INTS,
    "long": st.integers(-(2**62), 2**62),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "boolean": st.booleans(),
}
WIDER = {"int": ["int", "long", "double"], "long": ["long"], "float": ["float", "double"], "bytes": ["bytes"]}
NAMES = ("a", "b", "c", "d")


@st.composite
def writers(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return record(*(field(name, draw(st.sampled_from(sorted(VALUES)))) for name in names))


@st.composite
def evolved(draw: st.DrawFn, writer: dict[str, Any]) -> dict[str, Any]:
    """A reader of what was written so: fields are left out, widened, renamed, added."""
    fields: list[dict[str, Any]] = []
    for each in writer["fields"]:
        if len(fields) and draw(st.booleans()):
            continue
        kind = draw(st.sampled_from(WIDER.get(each["type"], [each["type"]])))
        renamed = draw(st.booleans())
        name = each["name"] + "_new" if renamed else each["name"]
        wrapped = draw(st.sampled_from([kind, ["null", kind]]))
        fields.append(field(name, wrapped, aliases=[each["name"]] if renamed else []))
    fields.append(field("added", "int", default=draw(INTS)))
    return record(*draw(st.permutations(fields)))


@given(data=st.data(), writer=writers())
@settings(max_examples=150, deadline=None)
def test_rows_are_those_that_fastavro_resolves(data: st.DataObject, writer: dict[str, Any]) -> None:
    reader = data.draw(evolved(writer))
    value = st.fixed_dictionaries({each["name"]: VALUES[each["type"]] for each in writer["fields"]})
    payloads = [avro_payload(writer, each) for each in data.draw(st.lists(value, min_size=1, max_size=4))]
    found = Shelf(avro(writer), avro(reader)).decode(*((payload, 1) for payload in payloads))
    assert rows(found) == [_resolved(writer, reader, payload) for payload in payloads]


def _resolved(writer: Any, reader: Any, payload: bytes) -> Any:
    written, wanted = (fastavro.parse_schema(json.loads(json.dumps(each))) for each in (writer, reader))
    return fastavro.schemaless_reader(BytesIO(payload), written, wanted)
