"""Compatibility of lengths, patterns and formats, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import STRING, Case, check

CASES = [
    Case("a length is demanded", {"minLength": 1}, STRING, ["MIN_LENGTH_ADDED /minLength"], ["TYPE_NARROWED /type"]),
    Case("a length is raised", {"minLength": 5}, {"minLength": 3}, ["MIN_LENGTH_INCREASED /minLength"]),
    Case("a length is limited", {"maxLength": 5}, STRING, ["MAX_LENGTH_ADDED /maxLength"], ["TYPE_NARROWED /type"]),
    Case("a length is limited more", {"maxLength": 3}, {"maxLength": 5}, ["MAX_LENGTH_DECREASED /maxLength"]),
    Case("a pattern is added", {"pattern": "^a"}, STRING, ["PATTERN_ADDED /pattern"], ["TYPE_NARROWED /type"]),
    Case(
        "a pattern is changed",
        {"pattern": "^a"},
        {"type": "string", "pattern": "^b"},
        ["PATTERN_CHANGED /pattern"],
        ["TYPE_NARROWED /type", "PATTERN_CHANGED /pattern"],
    ),
    Case(
        "a pattern that is not anchored and matches the empty text matches everything",
        {"type": "string", "pattern": "a*"},
        {"type": "string", "pattern": "^aa*b$"},
        [],
        ["PATTERN_CHANGED /pattern"],
    ),
    Case("the same without a pattern", {"pattern": "^a*"}, {}, []),
    Case("anchored on both sides it does not", {"pattern": "^a*$"}, {}, ["PATTERN_ADDED /pattern"]),
    Case("a format is added", {"format": "date"}, STRING, ["FORMAT_ADDED /format"], ["TYPE_NARROWED /type"]),
    Case(
        "a format is changed",
        {"format": "date"},
        {"type": "string", "format": "date-time"},
        ["FORMAT_CHANGED /format"],
        ["TYPE_NARROWED /type", "FORMAT_CHANGED /format"],
    ),
    Case(
        "an encoding is changed",
        {"contentEncoding": "base64"},
        {"type": "string", "contentEncoding": "base16"},
        ["CONTENT_ENCODING_CHANGED /contentEncoding"],
        ["TYPE_NARROWED /type", "CONTENT_ENCODING_CHANGED /contentEncoding"],
    ),
    Case(
        "a media type is added",
        {"contentMediaType": "image/png"},
        STRING,
        ["CONTENT_MEDIA_TYPE_ADDED /contentMediaType"],
        ["TYPE_NARROWED /type"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
