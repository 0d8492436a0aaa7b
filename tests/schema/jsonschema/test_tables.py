"""Compatibility tables that registries agree on: a keyword a row, narrower on the left, wider on the right.

Rows on which another registry differs are among the last ones, with the value or the proof that speaks for our answer:
a schema means the values that it allows.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.schema.jsonschema.kit import understood

Row = tuple[str, Any, Any]

DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
WHOLE: Final = {"type": "integer"}
TRUTH: Final = {"type": "boolean"}


def text(**more: Any) -> dict[str, Any]:
    return TEXT | more


def number(**more: Any) -> dict[str, Any]:
    return NUMBER | more


def array(**more: Any) -> dict[str, Any]:
    return {"type": "array"} | more


def thing(*required: str, closed: bool = False, extra: Any = None, **properties: Any) -> dict[str, Any]:
    """Return an object schema with these properties, and others of `extra`, or none."""
    made: dict[str, Any] = {"type": "object"}
    if properties:
        made["properties"] = properties
    if required:
        made["required"] = list(required)
    if closed or extra is not None:
        made["additionalProperties"] = False if extra is None else extra
    return made


def couple(*items: Any, more: Any = None) -> dict[str, Any]:
    return array(items=list(items)) | ({} if more is None else {"additionalItems": more})


WIDER: Final[list[Row]] = [
    ("anything for a text", TEXT, {}),
    ("true for a text", TEXT, True),
    ("anything for a truth value", TRUTH, {}),
    ("anything for null", {"type": "null"}, {}),
    ("numbers for whole ones", WHOLE, NUMBER),
    ("a text or a number for a text", thing(a=TEXT), thing(a={"type": ["string", "number"]})),
    ("any of a text and a number for a text", thing(a=TEXT), thing(a={"anyOf": [TEXT, NUMBER]})),
    ("a property that was forbidden", thing(a=False), thing(a=TEXT)),
    ("minLength lowered", text(minLength=4), text(minLength=2)),
    ("minLength gone", text(minLength=4), TEXT),
    ("maxLength raised", text(maxLength=2), text(maxLength=4)),
    ("maxLength gone", text(maxLength=2), TEXT),
    ("pattern gone", text(pattern="^[a-f]+$"), TEXT),
    ("format gone", text(format="date-time"), TEXT),
    ("contentEncoding gone", text(contentEncoding="base64"), TEXT),
    ("contentMediaType gone", text(contentMediaType="image/png"), TEXT),
    ("multipleOf gone", number(multipleOf=6), NUMBER),
    ("a divisor of multipleOf", number(multipleOf=6), number(multipleOf=3)),
    ("minimum lowered", number(minimum=4), number(minimum=2)),
    ("minimum gone", number(minimum=4), NUMBER),
    ("maximum raised", number(maximum=2), number(maximum=4)),
    ("maximum gone", number(maximum=2), NUMBER),
    ("the lower bound itself", number(exclusiveMinimum=4), number(minimum=4)),
    ("more than the lower bound itself", number(exclusiveMinimum=4), number(minimum=2)),
    ("the upper bound itself", number(exclusiveMaximum=4), number(maximum=4)),
    ("more than the upper bound itself", number(exclusiveMaximum=2), number(maximum=4)),
    (
        "the lower bound itself, from draft 4",
        number(minimum=4, exclusiveMinimum=True) | {"$schema": DRAFT_4},
        number(minimum=4),
    ),
    (
        "the upper bound itself, from draft 4",
        number(maximum=4, exclusiveMaximum=True) | {"$schema": DRAFT_4},
        number(maximum=4),
    ),
    ("a property that is no longer described", thing(a=NUMBER, b=TEXT), thing(b=TEXT)),
    ("content that is no longer closed", thing(a=TEXT, closed=True), thing(a=TEXT)),
    ("content that is open to texts", thing(a=TEXT, closed=True), thing(a=TEXT, extra=TEXT)),
    ("other properties that may be shorter", thing(extra=text(minLength=4)), thing(extra=text(minLength=2))),
    ("a property that is no longer required", thing("a", "b"), thing("b")),
    ("names of properties that may be shorter", thing() | {"propertyNames": text(minLength=4)},
     thing() | {"propertyNames": text(minLength=2)}),
    ("minProperties lowered", thing() | {"minProperties": 4}, thing() | {"minProperties": 2}),
    ("minProperties gone", thing() | {"minProperties": 4}, thing()),
    ("maxProperties raised", thing() | {"maxProperties": 2}, thing() | {"maxProperties": 4}),
    ("maxProperties gone", thing() | {"maxProperties": 2}, thing()),
    ("a dependency fewer", thing() | {"dependencies": {"a": ["b", "c"]}}, thing() | {"dependencies": {"a": ["b"]}}),
    ("a schema that depended", thing() | {"dependencies": {"a": thing("b")}}, thing()),
    ("a schema that depended on less", thing() | {"dependencies": {"a": thing("b", "c")}},
     thing() | {"dependencies": {"a": thing("b")}}),
    ("a pattern of properties fewer", thing() | {"patternProperties": {"^a": TEXT, "^b": NUMBER}},
     thing() | {"patternProperties": {"^a": TEXT}}),
    ("a new property in closed content", thing(a=TEXT, closed=True), thing(a=TEXT, b=TEXT, closed=True)),
    ("a new property where content was closed", thing(a=TEXT, closed=True), thing(a=TEXT, b=TEXT)),
    ("a new property, and more of its kind", thing(a=TEXT, closed=True), thing(a=TEXT, b=NUMBER, extra=TEXT)),
    ("a property less where content was closed", thing(a=TEXT, b=TEXT, closed=True), thing(a=TEXT)),
    ("a property that others cover", thing(a=TEXT, b=TEXT, closed=True), thing(a=TEXT, extra=TEXT)),
    ("a property of the kind of the others", thing(a=TEXT, extra=NUMBER), thing(a=TEXT, b=NUMBER, extra=True)),
    ("a property less beside a required one", thing("a", a=TEXT, b=TEXT), thing("a", a=TEXT)),
    ("items with a lower minimum", array(items=number(minimum=4)), array(items=number(minimum=2))),
    ("contains with a lower minimum", array(contains=number(minimum=4)), array(contains=number(minimum=2))),
    ("a first item with a lower minimum", couple(number(minimum=4), TEXT), couple(number(minimum=2), TEXT)),
    ("items that are no longer described", couple(TEXT, TRUTH), array()),
    ("more items than were listed", couple(TEXT, more=False), couple(TEXT)),
    ("more items, of one kind", couple(TEXT, more=False), couple(TEXT, more=NUMBER)),
    ("more items, of any kind", couple(TEXT, more=NUMBER), couple(TEXT, more=True)),
    ("more items, of a wider kind", couple(TEXT, more=WHOLE), couple(TEXT, more=NUMBER)),
    ("another item in the list", couple(TEXT, more=False), couple(TEXT, NUMBER, more=False)),
    ("another item, and any more", couple(TEXT, NUMBER, more=False), couple(TEXT, NUMBER, TRUTH, more=True)),
    ("another item, and more of another kind", couple(TEXT, more=False), couple(TEXT, TRUTH, more=NUMBER)),
    ("another item of the kind of the rest", couple(TEXT, more=NUMBER), couple(TEXT, NUMBER, more=True)),
    ("an item less, and any more", couple(TEXT, NUMBER, more=True), couple(TEXT, more=True)),
    ("an item less, where more was of one kind", couple(TEXT, TRUTH, more=NUMBER), couple(TEXT, more=True)),
    ("an item less that the rest covers", couple(TEXT, NUMBER, more=False), couple(TEXT, more=NUMBER)),
    ("minItems lowered", array(minItems=4), array(minItems=2)),
    ("minItems gone", array(minItems=4), array()),
    ("maxItems raised", array(maxItems=2), array(maxItems=4)),
    ("maxItems gone", array(maxItems=2), array()),
    ("items that may repeat", array(uniqueItems=True), array()),
    ("enum gone", text(enum=["tea", "mate"]), TEXT),
    ("enum with one more", text(enum=["tea", "mate"]), text(enum=["tea", "mate", "chai"])),
    ("const gone", text(const="tea"), TEXT),
    ("all of, one of them wider", {"allOf": [TEXT, {"maxLength": 2}]}, {"allOf": [TEXT, {"maxLength": 4}]}),
    ("all of fewer", {"allOf": [TEXT, {"maxLength": 2}]}, {"allOf": [TEXT]}),
    ("any of more", {"anyOf": [TEXT]}, {"anyOf": [TEXT, NUMBER]}),
    ("any of what was all of", number(allOf=[{"maximum": 9}, {"multipleOf": 6}]),
     number(anyOf=[{"maximum": 9}, {"multipleOf": 6}])),
    ("any of what was one of", number(oneOf=[{"maximum": 9}, {"multipleOf": 6}]),
     number(anyOf=[{"maximum": 9}, {"multipleOf": 6}])),
    ("any of more than was one of", number(oneOf=[{"maximum": 9}, {"multipleOf": 6}]),
     number(anyOf=[{"maximum": 12}, {"multipleOf": 6}, {"minimum": 2}])),
    ("not, of less", {"not": text(maxLength=4)}, {"not": text(maxLength=2)}),
    ("not, of a shorter stretch", {"not": text(minLength=2, maxLength=9)}, {"not": text(minLength=3, maxLength=8)}),
]  # fmt: skip

SAME: Final[list[Row]] = [
    ("minLength", text(minLength=4), text(minLength=4)),
    ("pattern", text(pattern="^[a-f]+$"), text(pattern="^[a-f]+$")),
    ("format", text(format="date-time"), text(format="date-time")),
    ("contentEncoding", text(contentEncoding="base64"), text(contentEncoding="base64")),
    ("minimum", number(minimum=4), number(minimum=4)),
    ("exclusiveMinimum", number(exclusiveMinimum=4), number(exclusiveMinimum=4)),
    (
        "exclusiveMinimum in the words of draft 4",
        number(minimum=4, exclusiveMinimum=True) | {"$schema": DRAFT_4},
        number(exclusiveMinimum=4),
    ),
    ("required in another order", thing("a", "b"), thing("b", "a")),
    ("minProperties", thing() | {"minProperties": 4}, thing() | {"minProperties": 4}),
    ("maxItems", array(maxItems=4), array(maxItems=4)),
    ("enum in another order", text(enum=["tea", "mate"]), text(enum=["mate", "tea"])),
    ("const as an enum of one", {"const": "tea"}, {"enum": ["tea"]}),
    ("all of in another order", {"allOf": [TEXT, {"maxLength": 2}]}, {"allOf": [{"maxLength": 2}, TEXT]}),
    ("any of in another order", {"anyOf": [TEXT, NUMBER]}, {"anyOf": [NUMBER, TEXT]}),
    ("one of in another order", {"oneOf": [TEXT, {"maxLength": 2}]}, {"oneOf": [{"maxLength": 2}, TEXT]}),
    ("not", {"not": TEXT}, {"not": TEXT}),
    (
        "a new property of the kind of all others",
        thing("a", a=TEXT, extra=TEXT),
        thing("a", a=TEXT, b=TEXT, extra=TEXT),
    ),
    ("an item of the kind of the rest", couple(TEXT, TEXT, more=TEXT), couple(TEXT, more=TEXT)),
    (
        "a definition written out",
        thing(home={"$ref": "#/definitions/place"}) | {"definitions": {"place": thing("street", street=TEXT)}},
        thing(home=thing("street", street=TEXT)),
    ),
    (
        "a recursive definition written out once",
        thing(root={"$ref": "#/definitions/node"})
        | {"definitions": {"node": thing(children=array(items={"$ref": "#/definitions/node"}))}},
        thing(root=thing(children=array(items={"$ref": "#/definitions/node"})))
        | {"definitions": {"node": thing(children=array(items={"$ref": "#/definitions/node"}))}},
    ),
]

APART: Final[list[Row]] = [
    ("other patterns", text(pattern="^[a-f]+$"), text(pattern="^[A-F]+$")),
    ("other formats", text(format="date-time"), text(format="date")),
    ("other encodings", text(contentEncoding="base64"), text(contentEncoding="quoted-printable")),
    ("other media", text(contentMediaType="image/png"), text(contentMediaType="image/jpeg")),
    ("multiples that have little in common", number(multipleOf=7), number(multipleOf=13)),
    ("properties of other kinds", thing(a=NUMBER, b=TEXT), thing(a=TEXT, b=NUMBER)),
    ("other properties required", thing("a", "b"), thing("b", "c")),
    (
        "patterns of properties of other kinds",
        thing() | {"patternProperties": {"^a": TEXT, "^b": NUMBER}},
        thing() | {"patternProperties": {"^a": NUMBER, "^b": TEXT}},
    ),
    ("items of other kinds", couple(NUMBER, TEXT), couple(TEXT, NUMBER)),
    ("more items of another kind", couple(TEXT, more=WHOLE), couple(TEXT, more=TRUTH)),
    ("an item that was of another kind", couple(TEXT, more=NUMBER), couple(TEXT, TRUTH, more=True)),
    ("an item that the rest does not cover", couple(TEXT, TRUTH, more=False), couple(TEXT, more=NUMBER)),
    (
        "an item that the rest covers in part",
        couple(TEXT, NUMBER, more=False),
        couple(TEXT, more=number(maximum=42)),
    ),
    (
        "a property that others cover in part",
        thing(a=TEXT, b=NUMBER, closed=True),
        thing(a=TEXT, extra=number(maximum=42)),
    ),
]

DISPUTED: Final[list[tuple[str, Any, Any, tuple[bool, bool]]]] = [
    # Nothing is ever written: no text is a list. So all of it can be read; others compare the words.
    ("a const that no text is", text(const=["a"]), text(const=["b"]), (True, True)),
    # A text, or else not a text or a short one: that is everything, before and after.
    (
        "any of a text and a short one",
        {"anyOf": [TEXT, {"maxLength": 2}]},
        {"anyOf": [TEXT, {"maxLength": 4}]},
        (True, True),
    ),
    # Three characters are a text and not short; with the longer limit they are both, and `oneOf` takes no both.
    (
        "one of a text and a short one",
        {"oneOf": [TEXT, {"maxLength": 2}]},
        {"oneOf": [TEXT, {"maxLength": 4}]},
        (False, True),
    ),
    # A short text is now both.
    ("one of one more", {"oneOf": [TEXT]}, {"oneOf": [TEXT, {"maxLength": 2}]}, (False, False)),
]


def dated(schema: Any) -> Any:
    return {"$schema": DRAFT_7} | schema if isinstance(schema, dict) else schema


def reads(reader: Any, writer: Any) -> bool:
    return not understood(dated(reader)).compatibility_problems(understood(dated(writer)))


def rows(table: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("one", "other"), [row[1:] for row in table], ids=[row[0].replace(" ", "-") for row in table]
    )


@rows(WIDER)
def test_the_wider_schema_reads_what_the_narrower_wrote_and_not_the_other_way_round(one: Any, other: Any) -> None:
    assert (reads(other, one), reads(one, other)) == (True, False)


@rows(SAME)
def test_schemas_that_allow_the_same_read_each_other(one: Any, other: Any) -> None:
    assert (reads(other, one), reads(one, other)) == (True, True)


@rows(APART)
def test_schemas_of_which_neither_covers_the_other_do_not_read_each_other(one: Any, other: Any) -> None:
    assert (reads(other, one), reads(one, other)) == (False, False)


@pytest.mark.parametrize(
    ("one", "other", "verdict"), [row[1:] for row in DISPUTED], ids=[row[0].replace(" ", "-") for row in DISPUTED]
)
def test_a_schema_means_the_values_that_it_allows(one: Any, other: Any, verdict: tuple[bool, bool]) -> None:
    assert (reads(other, one), reads(one, other)) == verdict
