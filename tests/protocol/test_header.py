"""The header: every rule of the design, the field that breaks it, and what can be saved of a header that does."""

from __future__ import annotations

import itertools
import re
import uuid
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.protocol.kit import ID, PARENT, TIMEOUT_MS_MAX, headers, is_uuid4, uuids

from penstock.core.errors import MalformedMessage
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.actions import ACTION_RULES, Action
from penstock.protocol.header import (
    HEADER_BYTES_MAX,
    NO_HEADER,
    SALVAGE_BYTES_MAX,
    Header,
    SalvagedHeader,
    header,
    is_request_id,
    parse_head,
    parse_header,
    salvage,
    serialise,
)

NAMES = ("action", "topic", "version", "requestId", "parentRequestId", "timeout")

LONGEST_NAMESPACE = "n" * 60 + "-dlq"
LONGEST_TOPIC = f"/{LONGEST_NAMESPACE}/{'t' * 255}"
LONGEST_VERSION = "123456.123456.123456"


def refused(raw: bytes | str, **options: int) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        parse_header(raw.encode() if isinstance(raw, str) else raw, **options)
    return caught.value


def field_of(raw: bytes | str) -> object:
    return refused(raw).details["field"]


# The same rules a second time, with none of the parser's own words

LEVEL = "[A-Za-z][A-Za-z0-9]*"
NAMESPACE = "/(?:[A-Za-z0-9_-]{1,60}|[A-Za-z0-9_-]{1,60}-[dD][lL][qQ])/"
TOPIC = re.compile(rf"(?:{NAMESPACE})?(?=[^/]{{1,255}}\Z){LEVEL}(?:\.{LEVEL}){{0,4}}")
PATTERN = re.compile(
    rf"(?:{NAMESPACE})?(?=[^/]{{1,255}}\Z)(?=(?:[^.]*\.){{0,4}}[^.]*\Z)(?:(?:{LEVEL}|\+)\.)*(?:{LEVEL}|\+|\#)"
)
VERSION = re.compile(r"(?=.{1,20}\Z)(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}", re.ASCII)


def keeps_its_rule(place: int, fields: list[str]) -> bool:
    """Is this field right, given those to its left?"""
    text = fields[place]
    action = fields[0].lower()
    match place:
        case 0:
            return text.isascii() and action in list(Action)
        case 1:
            rule = PATTERN if action in ("subscribe", "unsubscribe", "response") else TOPIC
            return rule.fullmatch(text) is not None
        case 2:
            return VERSION.fullmatch(text) is not None
        case 3 | 4:
            return is_uuid4(text) or (text == "" and place < len(fields) - 1)
    known = re.fullmatch("[1-9][0-9]*", text) is not None
    return known and action == "request" and int(text) <= TIMEOUT_MS_MAX


def first_wrong(raw: bytes) -> str | None:
    """The name of the field that must be named; None if the header is right. For up to six fields."""
    if not raw or len(raw) > HEADER_BYTES_MAX:
        return "header"
    fields = raw.decode("latin-1").split(":")
    for place in range(max(3, len(fields))):
        if place >= len(fields) or not keeps_its_rule(place, fields):
            return NAMES[place]
    return None


# Right


@given(headers())
def test_a_header_is_read_back_as_it_was_written(given_header: Header) -> None:
    assert parse_header(serialise(given_header)) == given_header


@given(headers())
def test_what_was_read_is_written_back_with_its_action_in_lower_case(given_header: Header) -> None:
    raw = serialise(given_header)
    action, colon, rest = raw.partition(b":")
    for spelled in (action, action.upper(), action.title()):
        assert serialise(parse_header(spelled + colon + rest)) == raw


@given(headers())
def test_a_written_header_has_no_more_colons_than_it_needs(given_header: Header) -> None:
    raw = serialise(given_header)
    optional = (given_header.request_id, given_header.parent_id, given_header.timeout_ms)
    last = max((place for place, value in enumerate(optional, 3) if value is not None), default=2)
    assert raw.count(b":") == last
    assert not raw.endswith(b":")


def test_every_part_of_a_full_header_can_be_asked_for() -> None:
    found = parse_header(f"Request:/Shop/Orders.Get:1.20.300:{ID}:{PARENT}:5000".encode())
    assert (found.action, found.topic, found.version) == (Action.REQUEST, "/Shop/Orders.Get", "1.20.300")
    assert (found.request_id, found.parent_id, found.timeout_ms) == (ID, PARENT, 5000)
    assert found.head.name == TopicName("shop", "orders.get")


@pytest.mark.parametrize(
    ("text", "request_id", "parent_id", "timeout_ms"),
    [
        ("request:a.b:1.0.0", None, None, None),
        (f"request:a.b:1.0.0:{ID}", ID, None, None),
        (f"request:a.b:1.0.0:{ID}:{PARENT}", ID, PARENT, None),
        (f"request:a.b:1.0.0:{ID}::5000", ID, None, 5000),
        (f"request:a.b:1.0.0::{PARENT}", None, PARENT, None),
        (f"request:a.b:1.0.0::{PARENT}:1", None, PARENT, 1),
        ("request:a.b:1.0.0:::3600000", None, None, 3_600_000),
    ],
)
def test_optional_fields_are_left_out_at_the_end_or_empty_in_between(
    text: str, request_id: str | None, parent_id: str | None, timeout_ms: int | None
) -> None:
    found = parse_header(text.encode())
    assert (found.request_id, found.parent_id, found.timeout_ms) == (request_id, parent_id, timeout_ms)
    assert serialise(found) == text.encode()


@pytest.mark.parametrize("action", Action)
def test_an_action_may_be_spelled_in_any_letter_case(action: Action) -> None:
    for spelled in (action.value, action.value.upper(), action.value.title(), action.value.swapcase()):
        assert parse_header(f"{spelled}:a.b:1.0.0".encode()).action is action


@pytest.mark.parametrize("action", Action)
def test_a_pattern_is_a_topic_only_where_the_action_takes_one(action: Action) -> None:
    for pattern in ("a.+", "#", "+.b.#", "/shop/#"):
        text = f"{action}:{pattern}:1.0.0"
        if ACTION_RULES[action].takes_pattern:
            assert parse_header(text.encode()).head.name == TopicPattern.parse(pattern)
        else:
            assert field_of(text) == "topic"


@pytest.mark.parametrize("version", ["0.0.0", "1.0.0", "10.20.30", LONGEST_VERSION, f"{'9' * 16}.0.0"])
def test_a_version_is_three_numbers(version: str) -> None:
    assert parse_header(f"publish:a:{version}".encode()).version == version


def test_the_same_head_is_parsed_once() -> None:
    one, other = (parse_header(f"publish:a.b.c:1.0.0:{each}".encode()) for each in (ID, PARENT))
    assert one.head is other.head


# Wrong: every rule, and the field that is named


@pytest.mark.parametrize(
    "action",
    [
        "",
        "pub",
        "publishes",
        "pu blish",
        " publish",
        "publish ",
        "\tpublish",
        "publish\n",
        "\npublish",
        "publish\r",
        "publish\0",
        "publ1sh",
        "ſubscribe",
        "ac\u212a",
        "ｐublish",
        "publ\u0131sh",
        "x" * 300,
    ],
)
def test_an_action_is_one_of_those_there_are(action: str) -> None:
    assert field_of(f"{action}:a.b:1.0.0") == "action"


@pytest.mark.parametrize(
    "topic",
    [
        "",
        ".",
        ".a",
        "a.",
        "a..b",
        "1a",
        "a.1",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\r",
        "\na",
        "a\0",
        "a_b",
        "a-b",
        "a/b",
        "/",
        "//",
        "//a",
        "/ns",
        "/ns/",
        "/ns/a/b",
        "/n.s/a",
        "/n s/a",
        "/" + "n" * 61 + "/a",
        "/" + "n" * 61 + "-dlq/a",
        "a.b.c.d.e.f",
        "a" * 256,
        "a.+",
        "#",
        "é",
        "а",
        "a\u0663",
        "a\u2028",
        "\u212a",
        "..",
        "../a",
    ],
)
def test_a_topic_is_a_topic(topic: str) -> None:
    assert field_of(f"publish:{topic}:1.0.0") == "topic"
    assert field_of(f"request:{topic}:1.0.0:{ID}::99") == "topic"


@pytest.mark.parametrize(
    "pattern", ["#.a", "a.#.b", "a+", "+a", "##", "a.b.c.d.e.#", "+.+.+.+.+.+", "/+/a", "/#/a", "*"]
)
def test_a_pattern_is_a_pattern(pattern: str) -> None:
    assert field_of(f"subscribe:{pattern}:1.0.0:{ID}") == "topic"


@pytest.mark.parametrize(
    "version",
    [
        "",
        "1",
        "1.0",
        "1.0.",
        ".1.0",
        "1..0",
        "1.0.0.0",
        "v1.0.0",
        "V1.0.0",
        "1.0.0-beta",
        "1.0.0+build",
        "01.0.0",
        "1.00.0",
        "1.0.00",
        "+1.0.0",
        "-1.0.0",
        "1.-0.0",
        " 1.0.0",
        "1.0.0 ",
        "1. 0.0",
        "1_0.0.0",
        "1e1.0.0",
        "0x1.0.0",
        "\u0661.0.0",
        "１.0.0",
        "1.0.0\n",
        "1.0.0\r",
        "1.0.0\0",
        "\n1.0.0",
        "1.0.*",
        "latest",
        f"{'9' * 17}.0.0",
        f"0.0.{'1' * 500}"[:200],
    ],
)
def test_a_version_is_nothing_but_three_numbers_of_at_most_20_characters(version: str) -> None:
    assert field_of(f"publish:a.b:{version}") == "version"
    assert field_of(f"publish:a.b:{version}:{ID}") == "version"


NO_IDS = [
    ID[:-1],
    ID + "0",
    ID.replace("-4", "-1", 1),
    ID.replace("-4", "-7", 1),
    ID.replace("-8", "-7", 1),
    ID.replace("-8", "-c", 1),
    ID.replace("-8", "-\x18", 1),
    ID.replace("-", ""),
    ID.replace("-", "_"),
    "{" + ID[1:-1] + "}",
    "g" + ID[1:],
    "\u0660" + ID[1:],
    " " + ID[1:],
    ID[:-1] + " ",
    ID + " ",
    " " + ID,
    ID + "\n",
    ID + "\r",
    "\n" + ID,
    ID + "\0",
    "urn" + ID,
    "+" + ID[1:],
    "1",
    "null",
]


@pytest.mark.parametrize("text", NO_IDS)
def test_an_id_is_a_uuid_of_version_4(text: str) -> None:
    assert not is_request_id(text)
    assert field_of(f"publish:a.b:1.0.0:{text}") == "requestId"
    assert field_of(f"publish:a.b:1.0.0:{text}:{PARENT}") == "requestId"
    assert field_of(f"publish:a.b:1.0.0:{ID}:{text}") == "parentRequestId"
    assert field_of(f"request:a.b:1.0.0::{text}:5") == "parentRequestId"


@given(st.text("0123456789abcdefABCDEFg-\n", min_size=34, max_size=38) | uuids)
@example(ID)
def test_what_counts_as_a_request_id_is_a_uuid4(text: str) -> None:
    assert is_request_id(text) == is_uuid4(text)


@pytest.mark.parametrize(
    "timeout",
    [
        "0",
        "00",
        "01",
        "0005000",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1_0",
        "1e3",
        "1.0",
        "0x10",
        "\u0663",
        "３",
        "²",
        "1\n",
        "\n1",
        "1\r",
        "1\0",
        "3600001",
        "9999999",
        "10000000",
        "9" * 100,
        "five",
        "5s",
    ],
)
def test_a_timeout_is_a_whole_number_of_milliseconds_up_to_an_hour(timeout: str) -> None:
    assert field_of(f"request:a.b:1.0.0:{ID}:{PARENT}:{timeout}") == "timeout"
    assert field_of(f"request:a.b:1.0.0:::{timeout}") == "timeout"


def test_a_timeout_is_exact_at_its_limit() -> None:
    for most in (1, 250, TIMEOUT_MS_MAX):
        raws = {ms: f"request:a:1.0.0:{ID}::{ms}".encode() for ms in (most - 1, most, most + 1)}
        if most > 1:
            assert parse_header(raws[most - 1], timeout_ms_max=most).timeout_ms == most - 1
        assert parse_header(raws[most], timeout_ms_max=most).timeout_ms == most
        error = refused(raws[most + 1], timeout_ms_max=most)
        assert error.details == {"field": "timeout", "expected": f"1 to {most}", "got": str(most + 1)}


@pytest.mark.parametrize("action", [action for action in Action if action is not Action.REQUEST])
def test_only_a_request_has_a_timeout(action: Action) -> None:
    for text in (f"{action}:a.b:1.0.0:{ID}:{PARENT}:5000", f"{action}:a.b:1.0.0:::1"):
        error = refused(text)
        assert error.details["field"] == "timeout"
        assert action.value in error.message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("publish", "topic"),
        ("publish:a.b", "version"),
        ("publish:", "topic"),
        ("publish:a.b:", "version"),
        (":", "action"),
        ("::", "action"),
        (":a.b:1.0.0", "action"),
        ("publish::1.0.0", "topic"),
        (f"publish::1.0.0:{ID}", "topic"),
        (f"publish:a.b::{ID}", "version"),
        (f":::{ID}", "action"),
        ("publish:a.b:1.0.0:", "requestId"),
        (f"publish:a.b:1.0.0:{ID}:", "parentRequestId"),
        (f"request:a.b:1.0.0:{ID}:{PARENT}:", "timeout"),
        (f"request:a.b:1.0.0:{ID}::", "timeout"),
        (f"request:a.b:1.0.0::{PARENT}:", "timeout"),
    ],
)
def test_a_required_field_cannot_be_empty_and_an_optional_one_not_last(text: str, field: str) -> None:
    assert field_of(text) == field


@pytest.mark.parametrize("colons", [2, 3])
def test_trailing_colons_are_refused_naming_a_field_that_is_empty(colons: int) -> None:
    empty = NAMES[3 : 3 + colons]
    assert field_of("request:a.b:1.0.0" + ":" * colons) in empty


@pytest.mark.parametrize("colons", [4, 5, 100])
def test_more_fields_than_there_are_is_refused_for_the_whole_header(colons: int) -> None:
    error = refused("request:a.b:1.0.0" + ":" * colons)
    assert (error.details["field"], error.details["got"]) == ("header", 3 + colons)
    assert field_of(f"request:a.b:1.0.0:{ID}:{PARENT}:5:x") == "header"
    assert field_of(f"request:a.b:1.0.0:{ID}:{PARENT}:5:") == "header"


@pytest.mark.parametrize("text", [f"publish:a:1.0.0:{ID}:{PARENT}:5:x", f"request:a:1.0.0:{ID}:{PARENT}:3600001:x"])
def test_a_wrong_timeout_is_named_before_the_fields_behind_it(text: str) -> None:
    assert field_of(text) == "timeout"


def test_an_empty_header_is_one_of_its_own() -> None:
    assert field_of(b"") == "header"


@pytest.mark.parametrize("place", range(6))
def test_an_error_says_what_was_expected_and_what_came(place: int) -> None:
    fields = ["request", "a.b", "1.0.0", ID, PARENT, "5000"]
    fields[place] = "?"
    error = refused(":".join(fields))
    assert error.details["field"] == NAMES[place]
    assert error.details["got"] == "?"
    assert error.details["expected"]
    assert NAMES[place] in error.message


def test_only_the_beginning_of_what_came_is_repeated() -> None:
    for size in (QUOTED_CHARS_MAX, QUOTED_CHARS_MAX + 1):
        got = refused("x" * size + ":a:1.0.0").details["got"]
        assert got == "x" * QUOTED_CHARS_MAX + ("..." if size > QUOTED_CHARS_MAX else "")


# Which field is the first


WRONG = ("x y", "1 a", "v1", "no-id", "no-id", "0")


@pytest.mark.parametrize("wrong", list(itertools.product([False, True], repeat=6)))
def test_the_first_wrong_field_from_the_left_is_the_one_named(wrong: tuple[bool, ...]) -> None:
    right = ("request", "a.b", "1.0.0", ID, PARENT, "5000")
    fields = [bad if is_wrong else good for good, bad, is_wrong in zip(right, WRONG, wrong, strict=True)]
    if any(wrong):
        assert field_of(":".join(fields)) == NAMES[wrong.index(True)]
    else:
        parse_header(":".join(fields).encode())


choices = (
    ["publish", "REQUEST", "response", "Subscribe", "ack", "", "pub", "publish ", "ac\u212a"],
    ["a.b", "A", "/ns/a.b", "a.+", "#", "", "a..b", "1a", "a b", "/ns", "a.b.c.d.e.f", "a" * 255, "a" * 256, "é"],
    ["1.0.0", "0.0.0", LONGEST_VERSION, "", "1.0", "v1.0.0", "01.0.0", "+1.0.0", "1.0.0-a", "1.0.0\n"],
    [ID, PARENT, "", "1", ID[:-1], ID + "\n", ID.replace("-4", "-1", 1)],
    [ID, PARENT, "", "1", ID + "0", " " + ID],
    ["1", "5000", "3600000", "3600001", "", "0", "+1", "01", "\u0663", "1\n"],
)
near_headers = st.integers(1, 6).flatmap(
    lambda count: st.tuples(*(st.sampled_from(each) for each in choices[:count])).map(":".join)
)


@pytest.mark.slow
@given(near_headers)
@settings(max_examples=1000)
def test_nearly_right_headers_are_judged_as_the_rules_say(text: str) -> None:
    raw = text.encode()
    expected = first_wrong(raw)
    if expected is None:
        assert serialise(parse_header(raw)).lower() == raw.lower()
    elif re.search("::+$", text) and expected in NAMES[3:]:
        assert refused(raw).details["field"] in NAMES[3:]  # which of several empty ones is a matter of taste
    else:
        assert refused(raw).details["field"] == expected


@pytest.mark.slow
@given(headers(), st.data())
@settings(max_examples=500)
def test_one_changed_byte_is_judged_as_the_rules_say(given_header: Header, data: st.DataObject) -> None:
    raw = bytearray(serialise(given_header))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.sampled_from(b" \n\r\0.:+#-/09aZ\xff\x80") | st.integers(0, 255))
    if raw.count(b":") > 5:
        return
    expected = first_wrong(bytes(raw))
    if expected is None:
        assert serialise(parse_header(bytes(raw))).lower() == bytes(raw).lower()
    elif raw.endswith(b"::"):
        refused(bytes(raw))
    else:
        assert refused(bytes(raw)).details["field"] == expected


# Lengths


def test_every_field_may_be_at_its_longest() -> None:
    text = f"request:{LONGEST_TOPIC}:{LONGEST_VERSION}:{ID}:{PARENT}:{TIMEOUT_MS_MAX}"
    assert serialise(parse_header(text.encode())) == text.encode()
    without_timeout = f"unsubscribe:{LONGEST_TOPIC}:{LONGEST_VERSION}:{ID}:{PARENT}"
    assert serialise(parse_header(without_timeout.encode())) == without_timeout.encode()


def test_the_longest_header_there_can_be_is_as_long_as_the_computed_maximum() -> None:
    longest = max(
        len(f"{action}:{LONGEST_TOPIC}:{LONGEST_VERSION}:{ID}:{PARENT}")
        + (len(f":{TIMEOUT_MS_MAX}") if verb.takes_timeout else 0)
        for action, verb in ACTION_RULES.items()
    )
    assert longest == HEADER_BYTES_MAX


def test_a_header_is_refused_for_its_length_one_byte_past_the_maximum() -> None:
    for size in (HEADER_BYTES_MAX - 1, HEADER_BYTES_MAX):
        assert field_of(b"publish:" + b"a" * (size - 8)) == "topic"
    error = refused(b"publish:" + b"a" * (HEADER_BYTES_MAX - 7))
    assert (error.details["field"], error.details["got"]) == ("header", HEADER_BYTES_MAX + 1)


def test_no_header_past_the_maximum_is_let_in_by_any_way() -> None:
    for size in range(HEADER_BYTES_MAX + 1, HEADER_BYTES_MAX + 40):
        room = size - len("publish::1.0.0:") - len(ID)
        refused(f"publish:{'a' * room}:1.0.0:{ID}")
        refused(f"{'publish'.ljust(room, 'h')}:a:1.0.0:{ID}")
        refused(f"publish:a:{'1.0.'.ljust(room, '0')}:{ID}")


# From its parts


def test_a_header_from_its_parts_is_checked_as_one_from_the_wire() -> None:
    with pytest.raises(MalformedMessage, match="topic"):
        header(Action.PUBLISH, "a..b")
    with pytest.raises(MalformedMessage, match="only a request"):
        header(Action.PUBLISH, "a.b", timeout_ms=5)
    with pytest.raises(MalformedMessage, match="timeout"):
        header(Action.REQUEST, "a.b", timeout_ms=0)
    with pytest.raises(MalformedMessage, match="requestId"):
        header(Action.REQUEST, "a.b", request_id="1")


@pytest.mark.parametrize(
    ("topic", "version", "request_id"),
    [
        ("a.b", "1.0.0:", None),
        ("a.b", f"1.0.0:{ID}", None),
        ("a.b:1.0.0", "", None),
        ("a.b", "1.0.0", f"{ID}:{PARENT}"),
        ("a.b", "1.0.0", f"{ID}:"),
        ("a.b", "1.0.0", ":"),
    ],
)
def test_no_part_can_smuggle_in_another(topic: str, version: str, request_id: str | None) -> None:
    with pytest.raises(MalformedMessage):
        header(Action.PUBLISH, topic, version, request_id)


def test_a_part_that_is_no_text_is_malformed_like_any_other() -> None:
    with pytest.raises(MalformedMessage):
        header(Action.PUBLISH, "a\ud800")


# Garbage


@given(
    st.binary(max_size=600)
    | st.text(max_size=600).map(str.encode)
    | st.text(":.-/+#\n aA01", max_size=80).map(str.encode)
)
@example(b"\n")
@example(b"\xff" * (HEADER_BYTES_MAX + 1))
@settings(max_examples=1000)
def test_garbage_is_a_header_or_malformed_and_nothing_else(raw: bytes) -> None:
    try:
        found = parse_header(raw)
    except MalformedMessage as error:
        named = error.details["field"]
    else:
        named = None
        assert serialise(found).lower() == raw.lower()
    assert named in (None, *NAMES, "header")
    saved = salvage(raw)
    assert saved.request_id is None or str(uuid.UUID(saved.request_id)) == saved.request_id.lower()
    parse_header(f"response:{saved.topic}:{saved.version}:{ID}".encode())


@given(st.binary(max_size=100))
def test_a_head_of_garbage_is_malformed_too(raw: bytes) -> None:
    with suppress(MalformedMessage):
        assert parse_head(raw).version


# What is saved


@given(headers().filter(lambda each: each.request_id is not None))
def test_all_of_a_right_header_is_saved(given_header: Header) -> None:
    assert salvage(serialise(given_header)) == SalvagedHeader(
        given_header.topic, given_header.version, given_header.request_id
    )


@given(
    st.tuples(*(st.sampled_from(each) for each in choices[:3])),
    st.lists(st.sampled_from(["", "x", PARENT]), max_size=9),
)
def test_the_request_id_is_saved_whatever_else_is_wrong(required: tuple[str, str, str], rest: list[str]) -> None:
    raw = ":".join((*required, ID, *rest)).encode()
    assert salvage(raw).request_id == ID
    with suppress(MalformedMessage):
        assert parse_header(raw).request_id == ID


def test_each_field_is_saved_on_its_own() -> None:
    assert salvage(f"bogus:a.b:2.1.0:{ID}".encode()) == SalvagedHeader("a.b", "2.1.0", ID)
    assert salvage(f"publish:a..b:2.1.0:{ID}".encode()) == SalvagedHeader(NO_HEADER.topic, "2.1.0", ID)
    assert salvage(f"publish:a.b:v2:{ID}".encode()) == SalvagedHeader("a.b", NO_HEADER.version, ID)
    assert salvage(b"publish:a.b:2.1.0:what") == SalvagedHeader("a.b", "2.1.0", None)
    assert salvage(b"publish:a.b") == SalvagedHeader("a.b", NO_HEADER.version, None)
    assert salvage(b"") == salvage(b"\xff:\xff:\xff:\xff") == NO_HEADER


@pytest.mark.parametrize(
    "raw",
    [
        f"request:{'a' * 300}:1.0.0:{ID}",
        f"request:{'a' * 900}:1.0.0:{ID}:{PARENT}",
        f"request;a.b;1.0.0;{ID};{PARENT}",
        f"request a.b 1.0.0 {ID}",
        f"request:a.b:1.0.0:{ID} ",
        f"request:a.b:1.0.0:{ID}\r",
        f"request:a.b:1.0.0: {ID}:{PARENT}",
    ],
)
def test_the_request_id_is_saved_from_headers_that_people_get_wrong(raw: str) -> None:
    assert salvage(raw.encode()).request_id == ID


def test_an_id_of_another_version_is_saved_as_it_was_sent() -> None:
    other = str(uuid.uuid1())
    assert salvage(f"request:a.b:1.0.0:{other}".encode()).request_id == other


def test_no_other_id_is_taken_for_the_request_id() -> None:
    assert salvage(f"request:a.b:1.0.0::{PARENT}:x".encode()).request_id is None
    assert salvage(f"publish:answers.{ID}".encode()).request_id is None
    assert salvage(f"publish:a.b:1.0.0:{ID}0".encode()).request_id is None


def test_a_header_that_is_far_too_long_is_not_looked_through() -> None:
    room = SALVAGE_BYTES_MAX - len(f"::1.0.0:{ID}")
    assert salvage(f"{'x' * room}::1.0.0:{ID}".encode()).request_id == ID
    assert salvage(f"{'x' * (room + 1)}::1.0.0:{ID}".encode()).request_id is None
    assert salvage(b":" * 50_000_000) == NO_HEADER
