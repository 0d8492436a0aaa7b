"""Avro payloads: values of a schema, and the path of the fault in others. Hostile ones cost nothing."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.avro.kit import array, enum, field, fixed, logical, map_, parsed, record, reread, written
from tests.schema.avro.strategies import schemas, values

from penstock.schema.avro.payload_steps import PAYLOAD_DEPTH_MAX, WEIGHTLESS_ITEMS_MAX
from penstock.schema.language import PayloadFault


def fault(tree: Any, payload: bytes) -> PayloadFault | None:
    return parsed(tree).validator().fault(payload)


def zigzag(number: int) -> bytes:
    raw = number << 1 ^ number >> 63
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


LINE = record("Line", field("sku", "string"), field("price", "double"))
ORDER = record("Order", field("id", "long"), field("items", array(LINE)), field("tags", map_(["null", "int"])))
CHAIN = record("Chain", field("next", ["null", "Chain"]))

GOOD: list[tuple[Any, bytes]] = [
    ("null", b""),
    ("boolean", b"\0"),
    ("boolean", b"\1"),
    ("int", zigzag(2**31 - 1)),
    ("int", zigzag(-(2**31))),
    ("int", b"\x82\x00"),  # longer than need be, and still read by everyone
    ("long", zigzag(2**63 - 1)),
    ("long", zigzag(-(2**63))),
    ("float", bytes(4)),
    ("double", struct.pack("<d", float("nan"))),
    ("bytes", b"\x04\xff\n"),
    ("string", b"\x06\xe2\x82\xac"),
    (fixed("F", 3), b"abc"),
    (fixed("F", 0), b""),
    (enum("E", "A", "B"), b"\x02"),
    (["null", "int"], b"\x00"),
    (["null", "int"], b"\x02\x0e"),
    (array("int"), b"\x00"),
    (array("int"), b"\x04\x02\x04\x00"),
    (array("int"), b"\x02\x02\x02\x04\x00"),
    (array("int"), b"\x03\x04\x02\x04\x00"),
    (array("null"), b"\x06\x00"),
    (array(record("Empty", field("n", "null"))), b"\x05\x00\x00"),
    (map_("int"), b"\x02\x02a\x0e\x00"),
    (map_("null"), b"\x02\x02a\x00"),
    (record("R"), b""),
    (CHAIN, b"\x02\x02\x00"),
    (logical("int", "date"), b"\x02"),
]


@pytest.mark.parametrize(("tree", "payload"), GOOD)
def test_a_value_conforms(tree: Any, payload: bytes) -> None:
    assert fault(tree, payload) is None
    reread(payload, tree)


BAD: list[tuple[str, Any, bytes, str, str]] = [
    ("nothing", "int", b"", "", "ends before the value does"),
    ("too much", "int", b"\x02\x02", "", "1 bytes before the payload"),
    ("something where nothing is expected", "null", b"\x00", "", "1 bytes before the payload"),
    ("a number without an end", "long", b"\x80", "", "ends before the value does"),
    ("a number of too many bytes", "long", b"\x80" * 11, "", "more than 64 bits"),
    ("a number of too many bits", "long", b"\xff" * 9 + b"\x02", "", "more than 64 bits"),
    ("a long for an int", "int", zigzag(2**31), "", "more than 32 bits"),
    ("a boolean that is neither", "boolean", b"\x02", "", "0 or 1, not 2"),
    ("half a float", "float", bytes(3), "", "ends before the value does"),
    ("half a double", "double", bytes(7), "", "ends before the value does"),
    ("a fixed that is too short", fixed("F", 3), b"ab", "", "ends before the value does"),
    ("a string with a negative length", "string", b"\x01", "", "the length is -1"),
    ("a string longer than what is left", "string", zigzag(2**62) + b"a", "", "1 bytes are left"),
    ("bytes longer than what is left", "bytes", b"\x04a", "", "the length is 2, and 1 bytes"),
    ("text in another encoding", "string", b"\x02\xe9", "", "not text in UTF-8"),
    ("half a surrogate pair", "string", b"\x06\xed\xa0\x80", "", "not text in UTF-8"),
    ("a symbol that is not there", enum("E", "A", "B"), b"\x04", "", "no symbol 2: there are 2"),
    ("a symbol before the first", enum("E", "A", "B"), b"\x01", "", "no symbol -1"),
    ("a symbol of an empty enum", enum("E"), b"\x00", "", "no symbol 0: there are 0"),
    ("a branch that is not there", ["null", "int"], b"\x04", "", "no branch 2"),
    ("a value of an empty union", [], b"\x00", "", "no branch 0"),
    ("an array without an end", array("int"), b"\x02\x02", "", "ends before the value does"),
    ("an array with more items than bytes", array("int"), zigzag(2**62) + b"\x02", "", "and 1 bytes are left"),
    ("an array with fewer than none, and no size", array("int"), zigzag(-(2**63)), "", "ends before"),
    ("a block with a negative size", array("int"), b"\x01\x01", "", "a block says it has -1 bytes"),
    ("a block that is shorter than it says", array("int"), b"\x01\x04\x02\x00", "", "ends 1 bytes before it says"),
    ("a block that is longer than it says", array("int"), b"\x03\x02\x02\x02\x00", "", "ends 1 bytes after it says"),
    ("a map whose keys are not text", map_("int"), b"\x02\x02\xff\x00\x00", "", "not text in UTF-8"),
    ("a map with more entries than bytes", map_("null"), zigzag(2**40), "", "items, and 0 bytes"),
    ("a bad item", array("string"), b"\x04\x00\x02\xff\x00", "/1", "not text in UTF-8"),
    ("a bad item of the second block", array("boolean"), b"\x04\x00\x01\x04\x01\x02\x00", "/3", "0 or 1"),
    ("a bad value", map_("boolean"), b"\x02\x06a/~\x02\x00", "/a~1~0", "0 or 1"),
    ("a bad price", ORDER, b"\x02\x04\x02a" + bytes(8) + b"\x02b" + bytes(3), "/items/1/price", "ends before"),
    ("a bad tag", ORDER, b"\x02\x00\x02\x06red\x04", "/tags/red", "no branch 2"),
    ("a link that breaks", CHAIN, b"\x02\x02\x04", "/next/next/next", "no branch 2"),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "payload", "path", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_does_not_conform_is_told_with_its_place(tree: Any, payload: bytes, path: str, words: str) -> None:
    found = fault(tree, payload)
    assert found is not None
    assert found.path == path
    assert words in found.message


def test_lines_say_nothing_since_a_newline_may_be_part_of_a_value() -> None:
    assert not parsed("null").validator().accepts_lines(memoryview(b"\n\n"), 2)


# Against the other implementation


@given(st.data(), schemas())
@settings(max_examples=60)
def test_what_another_implementation_writes_conforms_and_no_part_of_it_does(data: st.DataObject, tree: Any) -> None:
    payload = written(tree, data.draw(values(tree)))
    assert fault(tree, payload) is None
    assert fault(tree, payload + b"\0") is not None
    for end in range(max(0, len(payload) - 5), len(payload)):
        assert fault(tree, payload[:end]) is not None


@given(schemas(logicals=False), st.binary(max_size=12) | st.lists(st.sampled_from(b"\0\1\2\4"), max_size=12).map(bytes))
@settings(max_examples=150)
def test_what_conforms_is_read_by_another_implementation(tree: Any, payload: bytes) -> None:
    if fault(tree, payload) is None:
        reread(payload, tree)


@given(st.data(), schemas(logicals=False))
@settings(max_examples=60)
def test_damage_is_told_or_is_another_value(data: st.DataObject, tree: Any) -> None:
    payload = bytearray(written(tree, data.draw(values(tree))))
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    if fault(tree, bytes(payload)) is None:
        reread(bytes(payload), tree)


# Hostile payloads


def test_five_bytes_do_not_become_a_hundred_million_items() -> None:
    payload = zigzag(100_000_000) + b"\0"
    tracemalloc.start()
    found = fault(array("null"), payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert "items that take no bytes" in found.message
    assert peak < 1_000_000


def test_items_that_take_no_bytes_are_counted_over_all_arrays_of_a_payload() -> None:
    tree = array(array(record("Nothing", field("a", "null"), field("b", fixed("F", 0)))))
    half = zigzag(WEIGHTLESS_ITEMS_MAX // 2) + b"\0"
    assert fault(tree, b"\x04" + half * 2 + b"\0") is None
    assert fault(tree, b"\x06" + half * 3 + b"\0") is not None


def test_fields_that_take_no_bytes_take_no_time() -> None:
    nothing = [field(f"n{each}", "null") for each in range(5000)]
    tree = array(record("R", *nothing, field("b", "boolean")))
    assert fault(tree, zigzag(100_000) + bytes(100_001)) is None


def test_values_are_nested_to_a_limit() -> None:
    """Every link nests a record and a union."""
    links = PAYLOAD_DEPTH_MAX // 2
    assert fault(CHAIN, b"\2" * (links - 1) + b"\0") is None
    for many in (links, 100_000):
        found = fault(CHAIN, b"\2" * many + b"\0")
        assert found is not None
        assert f"nested more than {PAYLOAD_DEPTH_MAX} deep" in found.message


def test_a_type_that_contains_itself_and_nothing_else_has_no_values() -> None:
    found = fault(record("R", field("r", "R")), b"")
    assert found is not None
    assert "deep" in found.message


def test_the_deepest_types_of_all_are_walked_without_recursion_hurting() -> None:
    tree: Any = "R"
    for _ in range(30):
        tree = map_(array(tree))
    found = fault(record("R", field("f", tree)), b"\2\2k\2" * 10_000)
    assert found is not None
    assert "deep" in found.message


def test_a_chain_of_thousands_of_types_is_made_without_recursion() -> None:
    links = [
        record("R0", field("f", "boolean")),
        *(record(f"R{each}", field("f", f"R{each - 1}")) for each in range(1, 2000)),
    ]
    assert fault(links, b"\x02" + b"\1") is None
    assert fault(links, zigzag(1999) + b"\1") is not None


def test_a_path_with_a_huge_key_is_short() -> None:
    payload = b"\2" + zigzag(100_000) + b"k" * 100_000 + b"\2"
    found = fault(map_("boolean"), payload)
    assert found is not None
    assert len(found.path) < 300
