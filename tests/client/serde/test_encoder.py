"""Errors of a producer's schema: refused values, and schemas that the registry does not have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.client.registry import FakeRegistry, Purchase, run, writer
from tests.client.serde.protos import Order

from penstock.client.serde.schemas import AvroSchema, Pinned, Serde, UseLatest
from penstock.core.errors import InvalidRequest, SchemaRejected


def test_a_name_in_a_dict_that_the_type_does_not_have_is_rejected_with_its_path() -> None:
    with pytest.raises(SchemaRejected) as caught:
        writer(Purchase).encode_all([{"id": 1}, {"id": 2, "curency": "USD"}])
    assert (caught.value.details["path"], caught.value.details["record"]) == ("/curency", 1)
    assert "at /curency: Purchase has no such field" in caught.value.message


def test_a_decimal_with_too_many_digits_is_rejected_with_its_path() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    made = writer(AvroSchema({"type": "record", "name": "R", "fields": [{"name": "price", "type": price}]}))
    with pytest.raises(SchemaRejected) as caught:
        made.encode_all([{"price": Decimal("1.25")}, {"price": Decimal("1.255")}])
    assert (caught.value.details["path"], caught.value.details["record"]) == ("/price", 1)


@pytest.mark.parametrize(
    ("source", "register", "message"),
    [
        (
            UseLatest(),
            True,
            "Subject 'none-value' not found; register it first (penstock schema register none-value FILE)",
        ),
        (Pinned(1), True, "Subject 'none-value' not found; register it first"),
        (
            Purchase,
            False,
            "Schema not found; register it first (penstock schema register none-value FILE), or leave out",
        ),
        (Order, False, "Schema not found; register it first (penstock schema register shop/money.proto FILE)"),
    ],
)
def test_what_the_registry_does_not_have_is_told_with_what_to_do(source: Any, register: bool, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        writer(source, topic="none", register=register)
    assert caught.value.message.startswith(message)
    assert caught.value.details["registry_code"] in (40401, 40403)


def test_a_consumer_too_is_told_what_to_do_about_a_version_that_is_not_there() -> None:
    registry = FakeRegistry()
    with pytest.raises(InvalidRequest, match=r"not found; register it first .* or name another subject"):
        run(Serde(source=UseLatest()).decoder(registry.client(), "orders"))
    writer(AvroSchema('"string"'), registry)
    with pytest.raises(InvalidRequest, match="Version 2 not found; register it first"):
        run(Serde(source=Pinned(2)).decoder(registry.client(), "orders"))
