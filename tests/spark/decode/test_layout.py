"""The columns of decoded messages."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from tests.spark.decode.kit import Shelf, batch, json_schema, properties

from penstock.core.errors import InvalidRequest
from penstock.spark.decode.decoder import Decoder
from penstock.spark.decode.layout import Layout, check_columns
from penstock.spark.decode.options import Mode
from penstock.spark.scan.columns import schema_of

SHELF = Shelf(json_schema(properties(id={"type": "integer"}, amount={"type": "number"}, Offset={}, value_id={})))
KEPT = schema_of(["value", "offset", "id", "schema_id"])


def decoded(layout: Layout, mode: Mode, *messages: tuple[bytes, int]) -> list[dict[str, object]]:
    given = batch(*messages)
    found: list[dict[str, object]] = layout.rows(given, Decoder(layout.target, SHELF, mode).decode(given)).to_pylist()
    return found


def test_columns_of_the_payload_stand_in_the_place_of_value_and_give_way_to_those_of_the_message() -> None:
    layout = Layout.of(SHELF.target(), KEPT, Mode.FAIL)
    assert layout.schema.names == ["offset", "id", "schema_id", "value_id", "amount", "value_Offset", "value_value_id"]
    assert decoded(layout, Mode.FAIL, (b'{"id": 7, "amount": 1.5, "value_id": true}', 1)) == [
        {
            "offset": 100,
            "id": b"%016d" % 0,
            "schema_id": 1,
            "value_id": 7,
            "amount": 1.5,
            "value_Offset": None,
            "value_value_id": "true",
        }
    ]


def test_with_nulls_there_is_a_column_that_says_why() -> None:
    layout = Layout.of(SHELF.target(), schema_of(["value", "offset"]), Mode.NULL)
    found = decoded(layout, Mode.NULL, (b'{"amount": 1.5}', 1), (b"x", 1))
    assert [(row["offset"], row["amount"], row["_error"] is None) for row in found] == [
        (100, 1.5, True),
        (101, None, False),
    ]


def test_rows_that_are_left_out_are_left_out_of_all_columns() -> None:
    layout = Layout.of(SHELF.target(), KEPT, Mode.QUARANTINE)
    found = decoded(layout, Mode.QUARANTINE, (b'{"amount": 1}', 1), (b"x", 1), (b'{"amount": 2}', 1))
    assert [(row["offset"], row["amount"]) for row in found] == [(100, 1.0), (102, 2.0)]


def test_fewer_columns_are_decoded_where_fewer_are_asked_for() -> None:
    layout = Layout.of(SHELF.target(), KEPT, Mode.FAIL)
    asked = pa.schema([("amount", pa.float64()), ("offset", pa.int64())])
    few = pickle.loads(pickle.dumps(layout.only(asked)))
    assert few.target.fields.names == ["amount"]
    assert decoded(few, Mode.FAIL, (b'{"amount": 1, "id": "no matter"}', 1)) == [{"amount": 1.0, "offset": 100}]
    assert set(few.reads) == {"offset", "value", "schema_id", "topic", "partition", "id", "schema_version"}


def test_columns_of_the_message_alone_still_leave_out_what_is_bad() -> None:
    layout = Layout.of(SHELF.target(), KEPT, Mode.QUARANTINE).only(pa.schema([("offset", pa.int64())]))
    assert decoded(layout, Mode.QUARANTINE, (b"x", 1), (b"{}", 1)) == [{"offset": 101}]


def test_a_column_that_is_not_there_or_of_another_type_is_refused() -> None:
    layout = Layout.of(SHELF.target(), KEPT, Mode.FAIL)
    with pytest.raises(InvalidRequest, match="no column 'price'"):
        layout.only(pa.schema([("price", pa.float64())]))
    with pytest.raises(InvalidRequest, match="'amount' is asked for as int64, and it is double"):
        layout.only(pa.schema([("amount", pa.int64())]))


def test_messages_without_payloads_and_schemas_cannot_be_decoded() -> None:
    with pytest.raises(InvalidRequest, match="value and schema_id must be among the columns, which are key"):
        check_columns(["key"])
