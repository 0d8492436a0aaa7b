"""Batches of messages: modes, mixtures, framing, and what becomes of each row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.decode.kit import (
    Shelf,
    avro,
    avro_payload,
    batch,
    field,
    json_schema,
    only_reason,
    properties,
    reasons,
    record,
    rows,
)

from penstock.client.serde.framing import prefix
from penstock.core.errors import InvalidRequest, MalformedMessage, ServiceUnavailable
from penstock.core.schemas import Definition, SchemaKind
from penstock.spark.decode import decoder as decoders
from penstock.spark.decode.assembly import BAD
from penstock.spark.decode.decoder import Decoder
from penstock.spark.decode.options import Mode, Unnamed
from penstock.spark.files.registry import SchemaSource

NUMBERS = json_schema(properties("a", a={"type": "integer"}))
TEXTS = json_schema(properties(a={"type": "integer"}, s={"type": "string"}))


def test_a_bad_row_ends_a_decode_that_is_to_fail_and_the_error_names_it() -> None:
    with pytest.raises(
        MalformedMessage, match=r"/default/orders 3:101 cannot be read by schema 1: Expected `int`"
    ) as error:
        Shelf(NUMBERS).decode((b'{"a": 1}', 1), (b'{"a": "x"}', 1), (b"", 1), mode=Mode.FAIL)
    assert error.value.details["offset"] == 101
    assert "1 more" in str(error.value)
    assert "quarantine" in str(error.value)


def test_a_bad_row_is_null_in_its_place_and_it_is_told() -> None:
    found = Shelf(NUMBERS).decode((b'{"a": 1}', 1), (b"x", 1), (b'{"a": 3}', 1), mode=Mode.NULL)
    assert found.rows.to_pylist() == [{"a": 1}, {"a": None}, {"a": 3}]
    assert found.kept.to_pylist() == [0, 1, 2]
    assert [reason is None for reason in found.reasons.to_pylist()] == [True, False, True]
    assert found.bad.num_rows == 1


def test_a_bad_row_is_put_aside_with_all_that_is_known_of_it() -> None:
    found = Shelf(NUMBERS).decode((b'{"a": 1}', 1), (b"x", 1), (b'{"a": 3}', 1))
    assert found.rows.to_pylist() == [{"a": 1}, {"a": 3}]
    assert found.kept.to_pylist() == [0, 2]
    assert found.bad.schema == BAD
    (bad,) = found.bad.to_pylist()
    assert bad.pop("reason").startswith("JSON is malformed")
    assert bad == {
        "topic": "/default/orders",
        "partition": 3,
        "offset": 101,
        "id": b"0000000000000001",
        "schema_id": 1,
        "schema_version": 1,
        "value": b"x",
    }


def test_rows_keep_their_order_whatever_schemas_they_are_of() -> None:
    shelf = Shelf(NUMBERS, TEXTS)
    messages = [(b'{"a": %d}' % number, 1 + number % 2) for number in range(20)]
    found = shelf.decode(*messages)
    assert [row["a"] for row in rows(found)] == list(range(20))
    assert found.kept.to_pylist() == list(range(20))


def test_a_message_that_names_no_schema_is_bad_unless_the_latest_may_be_taken() -> None:
    shelf = Shelf(NUMBERS, TEXTS)
    unnamed = (b'{"s": "x"}', None), (b'{"s": "y"}', 0)
    assert reasons(shelf.decode(*unnamed)) == ["it names no schema"] * 2
    assert [row["s"] for row in rows(shelf.decode(*unnamed, unnamed=Unnamed.LATEST))] == ["x", "y"]


def test_a_schema_that_is_not_known_makes_its_messages_bad() -> None:
    found = Shelf(NUMBERS).decode((b'{"a": 1}', 1), (b'{"a": 1}', 77))
    assert found.rows.num_rows == 1
    assert "schema id 77 is not known to the shelf" in reasons(found)[0]


def test_a_schema_that_is_none_makes_its_messages_bad() -> None:
    shelf = Shelf((SchemaKind.JSON, "{"), NUMBERS)
    assert reasons(shelf.decode((b'{"a": 1}', 1), (b'{"a": 1}', 2)))


def test_a_registry_that_does_not_answer_is_an_error_and_makes_nothing_bad() -> None:
    class Gone(SchemaSource):
        def schema(self, schema_id: int) -> Definition:
            raise ServiceUnavailable(f"nobody knows what {schema_id} is")

    class At:
        def open(self) -> SchemaSource:
            return Gone.__new__(Gone)

    with pytest.raises(ServiceUnavailable):
        Decoder(Shelf(NUMBERS).target(), At(), Mode.QUARANTINE).decode(batch((b"{}", 1)))


def test_a_message_without_a_payload_is_bad() -> None:
    found = Shelf(NUMBERS).decode((None, 1), (b'{"a": 1}', 1), (None, None))
    assert found.rows.to_pylist() == [{"a": 1}]
    assert reasons(found) == ["it has no payload"] * 2


def test_an_empty_batch_has_no_rows_and_all_columns() -> None:
    found = Shelf(TEXTS).decode()
    assert found.rows.schema == Shelf(TEXTS).target().fields
    assert (found.rows.num_rows, found.bad.num_rows, len(found.kept)) == (0, 0, 0)


def test_a_batch_in_which_all_is_bad_has_no_rows() -> None:
    for mode, count in ((Mode.QUARANTINE, 0), (Mode.NULL, 2)):
        found = Shelf(TEXTS).decode((b"x", 1), (b"y", 1), mode=mode)
        assert (found.rows.num_rows, found.bad.num_rows) == (count, 2)


def test_what_a_batch_does_not_say_of_a_bad_row_is_null() -> None:
    small = batch((b"x", 1)).select(["value", "schema_id", "schema_version", "offset", "id"])
    found = Decoder(Shelf(NUMBERS).target(), Shelf(NUMBERS), Mode.QUARANTINE).decode(small)
    assert found.bad.column("partition").to_pylist() == [None]
    assert found.bad.column("topic").to_pylist() == ["/default/orders"]


# framing


def test_framed_payloads_are_read_by_the_schema_that_they_begin_with() -> None:
    shelf = Shelf(NUMBERS, TEXTS)
    framed = prefix(1) + b'{"a": 1}', None
    assert rows(shelf.decode(framed, framing="confluent"))[0]["a"] == 1
    assert only_reason(shelf.decode((b'{"a": 1}', 1), framing="confluent")).startswith("it does not begin with")
    assert "schema id 9" in only_reason(shelf.decode((prefix(9) + b"{}", None), framing="confluent"))


def test_where_only_some_are_framed_those_are_taken_so_that_look_so_and_name_nothing_else() -> None:
    shelf = Shelf(
        avro(record(field("a", "int"), field("b", "int"), field("c", "int"), field("d", "int"), field("e", "int")))
    )
    plain = b"\x00\x00\x00\x00\x02"
    found = shelf.decode((plain, 2), (prefix(1) + plain, 1), (prefix(1) + plain, None), framing="auto")
    assert [row["e"] for row in found.rows.to_pylist()] == [1, 1]
    assert "schema id 2" in reasons(found)[0]


def test_an_unknown_framing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="framing='kafka'"):
        Shelf(NUMBERS).decode(framing="kafka")


# a batch in pieces


@given(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=30), piece=st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_large_batches_are_decoded_in_pieces_with_the_same_result(sizes: list[int], piece: int) -> None:
    messages = [(b'{"a": %d, "s": "%s"}' % (number, b"x" * size), 1) for number, size in enumerate(sizes)]
    messages[len(sizes) // 2] = (b"bad", 1)
    shelf = Shelf(TEXTS)
    before = decoders.PIECE_BYTES
    whole = shelf.decode(*messages)
    try:
        decoders.PIECE_BYTES = piece  # type: ignore[misc]
        cut = shelf.decode(*messages)
    finally:
        decoders.PIECE_BYTES = before  # type: ignore[misc]
    assert cut.rows.to_pylist() == whole.rows.to_pylist()
    assert cut.bad.to_pylist() == whole.bad.to_pylist()


def test_one_bad_value_among_many_is_found_and_costs_the_others_nothing() -> None:
    schema = record(field("t", {"type": "long", "logicalType": "timestamp-millis"}))
    bare = record(field("t", "long"))
    messages = [(avro_payload(bare, {"t": number}), 1) for number in range(1000)]
    messages[137] = (avro_payload(bare, {"t": 2**62}), 1)
    found = Shelf(avro(schema)).decode(*messages)
    assert found.bad.column("offset").to_pylist() == [237]
    assert found.rows.num_rows == 999
    assert found.kept.to_pylist() == [number for number in range(1000) if number != 137]


def test_a_sliced_batch_is_decoded_as_it_stands() -> None:
    whole = batch(*((b'{"a": %d}' % number, 1) for number in range(10)))
    found = Decoder(Shelf(NUMBERS).target(), Shelf(NUMBERS), Mode.FAIL).decode(whole.slice(4, 3))
    assert found.rows.to_pylist() == [{"a": 4}, {"a": 5}, {"a": 6}]


def test_only_the_columns_asked_for_are_decoded() -> None:
    shelf = Shelf(NUMBERS, TEXTS)
    target = shelf.target("merged").only({"s"})
    found = Decoder(target, shelf, Mode.FAIL).decode(batch((b'{"a": "no matter"}', 1), (b'{"s": "x", "a": []}', 2)))
    assert found.rows.schema == pa.schema([("s", pa.string())])
    assert found.rows.to_pylist() == [{"s": None}, {"s": "x"}]


def test_a_version_that_came_after_the_target_was_made_is_read_into_it() -> None:
    before, after = Shelf(NUMBERS), Shelf(NUMBERS, TEXTS)
    decoder = Decoder(before.target(), after, Mode.FAIL)
    found = decoder.decode(batch((b'{"a": 1}', 1), (b'{"a": 2, "s": "new"}', 2)))
    assert found.rows.to_pylist() == [{"a": 1}, {"a": 2}]
