"""Python types as schemas: derivation, encoding, decoding."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from penstock.client.serde.python_types import to_builtins, type_codec_of
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import SchemaKind


@dataclass
class Item:
    sku: str
    count: int = 1


@dataclass
class Order:
    """Something somebody wants."""

    id: int
    items: list[Item] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    note: str | None = None


class Line(msgspec.Struct):
    sku: str
    price: Decimal = Decimal(0)


class Invoice(msgspec.Struct):
    id: int
    lines: list[Line] = []


class Part(pydantic.BaseModel):
    sku: str
    count: int = 1


class Delivery(pydantic.BaseModel):
    id: int = pydantic.Field(alias="deliveryId")
    parts: list[Part] = []

    @pydantic.computed_field
    def weight(self) -> float:
        return 1.5 * len(self.parts)


class Visit(TypedDict):
    page: str


class Card(msgspec.Struct, tag="card", rename="camel"):
    card_number: str


class Cash(msgspec.Struct, tag="cash", omit_defaults=True):
    cents: int = 0


class Stop(NamedTuple):
    number: int
    visit: Visit


class Leg(msgspec.Struct, array_like=True, tag="leg"):
    number: int
    visit: Visit


@dataclass
class Tour:
    paid: Card | Cash | None = None
    stop: Stop | None = None
    leg: Leg | None = None
    pair: tuple[int, Visit] | None = None
    by_day: dict[str, list[Visit]] = field(default_factory=dict)
    next: Tour | None = None


class Envelope(pydantic.BaseModel, extra="allow"):
    id: int


class Plain:
    """A class that is neither a dataclass nor a model."""


@dataclass
class Holder:
    held: Plain


def derived(kind: Any) -> dict[str, Any]:
    schema = type_codec_of(kind).schema()
    assert schema.kind is SchemaKind.JSON
    found: dict[str, Any] = json.loads(schema.text)
    return found


def test_the_schema_of_a_dataclass_says_what_it_writes_and_nothing_else() -> None:
    schema = derived(Order)
    assert schema["$ref"] == "#/$defs/Order"
    order, item = schema["$defs"]["Order"], schema["$defs"]["Item"]
    assert (order["required"], order["additionalProperties"]) == (["id"], False)
    assert (item["required"], item["additionalProperties"]) == (["sku"], False)
    assert order["properties"]["tags"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert order["description"] == "Something somebody wants."


def test_a_field_called_properties_is_a_field_like_any_other() -> None:
    @dataclass
    class House:
        properties: dict[str, str] = field(default_factory=dict)
        default: str = "properties"

    house = derived(House)["$defs"]["House"]
    assert set(house["properties"]) == {"properties", "default"}
    assert house["properties"]["properties"] == {"type": "object", "additionalProperties": {"type": "string"}}


def test_the_schema_of_a_model_has_its_aliases_and_what_it_computes() -> None:
    schema = derived(Delivery)
    assert set(schema["properties"]) == {"deliveryId", "parts", "weight"}
    assert "parts" not in schema["required"]  # it has a default, so a later version may bring it in
    assert schema["additionalProperties"] is False


def test_the_schema_of_a_type_is_the_same_every_time() -> None:
    assert type_codec_of(Order).schema() == type_codec_of(Order).schema()
    assert type_codec_of(Delivery).schema() == type_codec_of(Delivery).schema()


@pytest.mark.parametrize("kind", [int, float])
def test_numbers_have_a_kind_of_their_own(kind: Any) -> None:
    assert (type_codec_of(kind).schema().kind, type_codec_of(kind).schema().text) == (SchemaKind.NUMBER, "")


@pytest.mark.parametrize(
    ("kind", "value", "payload"),
    [
        (Order, Order(1, [Item("a")]), b'{"id":1,"items":[{"sku":"a","count":1}],"tags":{},"note":null}'),
        (Invoice, {"id": 1}, b'{"id":1,"lines":[]}'),
        (Invoice, Invoice(1, [Line("a")]), b'{"id":1,"lines":[{"sku":"a","price":"0"}]}'),
        (Delivery, Delivery(deliveryId=1), b'{"deliveryId":1,"parts":[],"weight":0.0}'),
        (Visit, {"page": "/"}, b'{"page":"/"}'),
        (int, 7, b"7"),
        (float, 7, b"7"),
    ],
)
def test_values_are_written_as_json(kind: Any, value: Any, payload: bytes) -> None:
    assert type_codec_of(kind).encode(value) == payload


@pytest.mark.parametrize(
    ("kind", "value", "path", "reason"),
    [
        (Order, Order("x"), "/id", "Expected `int`, got `str`"),  # type: ignore[arg-type]
        (Order, Order(1, [Item("a"), Item(2)]), "/items/1/sku", "Expected `str`, got `int`"),  # type: ignore[arg-type]
        (Order, {"id": 1, "items": [{}]}, "/items/0", "missing required field `sku`"),
        (Order, Item("a"), "", "expected Order, not Item"),
        (Order, Order(1, note=object()), "", "object is unsupported"),  # type: ignore[arg-type]
        (Invoice, Invoice("x"), "/id", "Expected `int`, got `str`"),  # type: ignore[arg-type]
        (Delivery, Delivery.model_construct(id=1, parts=[Part.model_construct(sku=2)]), "/parts/0/sku", "valid string"),
        (Delivery, {"deliveryId": 1, "parts": [{}]}, "/parts/0/sku", "Field required"),
        (Delivery, Part(sku="a"), "", "expected Delivery, not Part"),
        (Visit, [], "", "expected Visit, not list"),
        (Tour, {"paid": {"cents": 1}}, "/paid", "missing required field `type`"),
        (int, 7.5, "", "expected int, not float"),
        (int, True, "", "Expected `int`, got `bool`"),
        (float, float("nan"), "", "Expected `float`, got `null`"),
    ],
)
def test_a_value_that_does_not_fit_says_where(kind: Any, value: Any, path: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as caught:
        type_codec_of(kind).encode(value)
    assert caught.value.path == path
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Order, {"id": 1, "nots": "x"}, "/nots"),
        (Order, {"idd": 1}, "/idd"),  # rather than that `id` is missing
        (Order, {"id": 1, "items": [{"sku": "a"}, {"sku": "b", "color": "red"}]}, "/items/1/color"),
        (Order, Order(1, [{"sku": "a", "color": "red"}]), "/items/0/color"),  # type: ignore[list-item]
        (Invoice, {"id": 1, "unknown": 2}, "/unknown"),
        (Visit, {"page": "/", "size": 1}, "/size"),
        (list[Visit], [{"page": "/"}, {"page": "/", "size": 1}], "/1/size"),
        (Tour, {"paid": {"type": "card", "card_number": "1"}}, "/paid/card_number"),
        (Tour, {"stop": [1, {"page": "/", "size": 1}]}, "/stop/1/size"),
        (Tour, {"leg": ["leg", 1, {"page": "/", "size": 1}]}, "/leg/2/size"),
        (Tour, {"pair": [1, {"page": "/", "size": 1}]}, "/pair/1/size"),
        (Tour, {"by_day": {"a/b": [{"page": "/", "size": 1}]}}, "/by_day/a~1b/0/size"),
        (Tour, {"next": {"next": {"nxt": None}}}, "/next/next/nxt"),
        (Delivery, {"id": 1}, "/id"),
        (Delivery, {"deliveryId": 1, "parts": [{"sku": "a", "color": "red"}]}, "/parts/0/color"),
    ],
)
def test_a_name_that_no_field_has_is_refused_and_not_left_out(kind: Any, value: Any, path: str) -> None:
    with pytest.raises(ValueMismatch, match=r"no such field|not permitted") as caught:
        type_codec_of(kind).encode(value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("kind", "value", "payload"),
    [
        (Order, {"id": 1, "tags": {"any": 1}}, b'{"id":1,"items":[],"tags":{"any":1}}'),
        (Tour | None, {"paid": {"type": "cash", "cents": 0}, "by_day": {}}, b'"paid":{"type":"cash"}'),
        (Card, {"cardNumber": "1"}, b'{"type":"card","cardNumber":"1"}'),
        (Cash, {"type": "cash", "cents": 0}, b'{"type":"cash"}'),
        (Envelope, {"id": 1, "more": 2}, b'{"id":1,"more":2}'),  # the model takes any
    ],
)
def test_names_that_the_type_has_or_takes_are_no_mistake(kind: Any, value: Any, payload: bytes) -> None:
    assert payload in type_codec_of(kind).encode(value)


def test_a_dict_within_itself_is_a_misfit() -> None:
    endless: dict[str, Any] = {}
    endless["next"] = endless
    with pytest.raises(ValueMismatch, match="too deeply"):
        type_codec_of(Tour).encode(endless)


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (Order, b'{"id":1,"items":[{"sku":"a","color":"red"}],"more":true}', Order(1, [Item("a")])),
        (Invoice, b'{"id":1,"more":true}', Invoice(1)),
        (Delivery, b'{"deliveryId":1,"more":true}', Delivery(deliveryId=1)),
    ],
)
def test_what_is_not_known_is_ignored_and_defaults_are_filled_in(kind: Any, payload: bytes, value: Any) -> None:
    assert type_codec_of(kind).decode(payload) == value


@pytest.mark.parametrize("kind", [Order, Invoice, Delivery])
@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b"null", b'{"id":"x"}', b"[" * 100_000])
def test_what_cannot_be_read_is_a_misfit_whatever_it_is(kind: Any, payload: bytes) -> None:
    with pytest.raises(ValueMismatch):
        type_codec_of(kind).decode(payload)


@pytest.mark.parametrize("kind", ["string", {"type": "string"}, object, Item("a"), Part(sku="a"), Decimal])
def test_what_is_no_type_to_derive_a_schema_from_is_refused(kind: Any) -> None:
    if kind is Decimal:  # it is one: text, in JSON
        assert type_codec_of(kind).encode(Decimal("1.5")) == b'"1.5"'
        return
    with pytest.raises(InvalidRequest):
        type_codec_of(kind).schema()


@pytest.mark.parametrize("kind", [Plain, Holder, list[Plain]])
def test_a_class_that_is_not_known_is_named_with_what_to_make_of_it(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"Plain'> is not supported; make that a dataclass") as caught:
        type_codec_of(kind).schema()
    assert "schema_hook" not in caught.value.message


def test_a_model_with_something_that_json_has_not_is_refused() -> None:
    class Odd(pydantic.BaseModel, arbitrary_types_allowed=True):
        held: Plain

    with pytest.raises(InvalidRequest, match="no type that a schema can be derived from"):
        type_codec_of(Odd).schema()


def test_objects_of_all_sorts_become_dicts_that_keep_what_avro_knows() -> None:
    @dataclass
    class Event:
        at: datetime
        amount: Decimal
        raw: bytes

    now = datetime.now(UTC)
    assert to_builtins(Event(now, Decimal("1.5"), b"x")) == {"at": now, "amount": Decimal("1.5"), "raw": b"x"}
    assert to_builtins(Invoice(1, [Line("a")])) == {"id": 1, "lines": [{"sku": "a", "price": Decimal(0)}]}
    assert to_builtins(Part(sku="a")) == {"sku": "a", "count": 1}
    assert to_builtins({"a": 1}) == {"a": 1}
