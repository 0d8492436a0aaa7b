"""Mismatches of a body name the field, and the values that it may have."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.server.admin.bodies import MessageBody, SubscriptionBody, TopicBody
from penstock.server.api.bodies import decode_body
from penstock.server.api.errors import HttpError


@pytest.mark.parametrize(
    ("kind", "body", "field", "words"),
    [
        (TopicBody, '{"topic": "a", "dispatch": "x"}', "dispatch", "it is one of live, reliable"),
        (TopicBody, '{"topic": "a", "partitions": 0}', "partitions", "`int` >= 1"),
        (TopicBody, "{}", "topic", "missing"),
        (TopicBody, '{"topic": "a", "part": 1}', "part", "unknown"),
        (TopicBody, '{"topic": "a", "retention": {"age": 1}}', "retention.age", "unknown"),
        (TopicBody, '{"topic": "a", "retention": {"keep_for": [1]}}', "retention.keep_for[0]", "`str`"),
        (TopicBody, '{"topic": "a", "schema_policy": "x"}', "schema_policy", "it is one of enforce, none, warn"),
        (TopicBody, "[]", "body", "`object`"),
        (MessageBody, '{"attributes": {"a": 1}}', "attributes[...]", "`str`"),
        (SubscriptionBody, '{"subscription": "a", "from": []}', "from", "got `array`"),
        (
            SubscriptionBody,
            '{"subscription": "a", "type": "x"}',
            "type",
            "it is one of exclusive, failover, key_shared, shared",
        ),
    ],
)
def test_the_field_is_named_and_what_it_may_be(kind: Any, body: str, field: str, words: str) -> None:
    with pytest.raises(HttpError) as refused:
        decode_body(body.encode(), kind)
    assert (refused.value.status, refused.value.details) == (422, {"field": field})
    assert words in refused.value.message


def test_a_field_with_a_long_name_is_named_briefly() -> None:
    with pytest.raises(HttpError) as refused:
        decode_body(b'{"%s": 1}' % (b"a" * 10_000), TopicBody)
    assert len(str(refused.value.details["field"])) < 200
