"""Compatibility of array items, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import DRAFT_7, INTEGER, NUMBER, STRING, Case, an_array, check

CASES = [
    Case("items are narrowed", an_array(items=INTEGER), an_array(items=NUMBER), ["TYPE_NARROWED /items/type"]),
    Case("items get a schema", an_array(items=INTEGER), an_array(), ["TYPE_NARROWED /items/type"]),
    Case(
        "a first item is narrowed",
        an_array(prefixItems=[INTEGER]),
        an_array(prefixItems=[NUMBER]),
        ["TYPE_NARROWED /prefixItems/0/type"],
    ),
    Case(
        "a first item is added to open content",
        an_array(prefixItems=[STRING, STRING]),
        an_array(prefixItems=[STRING]),
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL /prefixItems/1"],
    ),
    Case(
        "a first item is removed from closed content",
        an_array(prefixItems=[STRING], items=False),
        an_array(prefixItems=[STRING, STRING], items=False),
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL /items"],
    ),
    Case(
        "further items are removed",
        an_array(prefixItems=[STRING], items=False),
        an_array(prefixItems=[STRING]),
        ["ADDITIONAL_ITEMS_REMOVED /items"],
    ),
    Case(
        "further items cover a first one",
        an_array(prefixItems=[STRING, INTEGER], items=False),
        an_array(prefixItems=[STRING], items=INTEGER),
        ["ADDITIONAL_ITEMS_REMOVED /items"],
    ),
    Case(
        "tuples of draft 7",
        {**DRAFT_7, **an_array(items=[STRING], additionalItems=False)},
        {**DRAFT_7, **an_array(items=[STRING, STRING], additionalItems=False)},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL /additionalItems"],
    ),
    Case(
        "tuples of draft 7 are tuples of 2020-12",
        {**DRAFT_7, **an_array(items=[STRING], additionalItems=INTEGER)},
        an_array(prefixItems=[STRING], items=INTEGER),
        [],
    ),
    Case("more items are wanted", an_array(minItems=2), an_array(minItems=1), ["MIN_ITEMS_INCREASED /minItems"]),
    Case("fewer items are taken", an_array(maxItems=1), an_array(maxItems=2), ["MAX_ITEMS_DECREASED /maxItems"]),
    Case(
        "a closed tuple has so many items",
        an_array(maxItems=2),
        an_array(prefixItems=[STRING, STRING], items=False),
        [],
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL /prefixItems/0", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL /prefixItems/1"],
    ),
    Case("items are unique", an_array(uniqueItems=True), an_array(), ["UNIQUE_ITEMS_ADDED /uniqueItems"]),
    Case("one item is unique", an_array(uniqueItems=True), an_array(maxItems=1), [], ["MAX_ITEMS_ADDED /maxItems"]),
    Case("something is contained", an_array(contains=STRING), an_array(), ["CONTAINS_ADDED /contains"]),
    Case(
        "something else is contained",
        an_array(contains=INTEGER),
        an_array(contains=NUMBER),
        ["CONTAINS_NARROWED /contains"],
    ),
    Case(
        "all items are what is contained",
        an_array(contains=STRING),
        an_array(items=STRING, minItems=1),
        [],
        ["TYPE_NARROWED /items/type"],
    ),
    Case(
        "more is contained",
        an_array(contains=STRING, minContains=2),
        an_array(contains=STRING),
        ["CONTAINS_NARROWED /contains"],
    ),
    Case(
        "not too much is contained",
        an_array(contains=STRING, maxContains=1),
        an_array(contains=STRING, maxContains=2),
        ["MAX_CONTAINS_DECREASED /maxContains"],
    ),
    Case(
        "what is unevaluated in arrays",
        an_array(prefixItems=[STRING], unevaluatedItems=False),
        an_array(prefixItems=[STRING]),
        ["ADDITIONAL_ITEMS_REMOVED /unevaluatedItems"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
