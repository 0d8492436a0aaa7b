"""Topic names and patterns: what is refused at the door, and that nothing which is let in can leave its directory."""

from __future__ import annotations

import itertools
import pickle
import posixpath
import re
import string
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.errors import TopicNotSupported
from penstock.core.limits import NAMESPACE_CHARS_MAX, PARTITIONS_MAX, TOPIC_CHARS_MAX, TOPIC_LEVELS_MAX
from penstock.core.names import DEAD_LETTER_SUFFIX, DEFAULT_NAMESPACE, TopicName, TopicPattern, nearest

unhurried = settings(deadline=None)  # a busy machine is not a failed property

LETTERS = string.ascii_letters
LETTERS_AND_DIGITS = string.ascii_letters + string.digits
PARTITIONED_CHARS_MAX = 245  # and "-part-1023" makes 255

# Letters and digits to `str.isalnum`, `\w` and `int()`, though not to a file name that must be the same everywhere.
# The Kelvin sign and the long s turn into ASCII when their case is changed.
FOREIGN = [
    "é",
    "ß",
    "ñ",
    "ª",
    "²",
    "٣",
    "߃",
    "Ａ",
    "ａ",
    "３",
    "．",
    "／",
    "а",
    "\u212a",
    "\u017f",
    "\u0130",
    "e\u0301",
    "𝟛",
]
UNSAFE = [
    "\0",
    "\n",
    "\r",
    "\t",
    " ",
    "\\",
    ":",
    "*",
    "?",
    "~",
    "$",
    "%",
    "\x7f",
    "\u2028",
    "\u200b",
    "\ufeff",
    "\udcff",
]

levels = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS_AND_DIGITS, max_size=8))
topics = st.lists(levels, min_size=1, max_size=TOPIC_LEVELS_MAX).map(".".join)
namespaces = st.text(LETTERS_AND_DIGITS + "_-", min_size=1, max_size=NAMESPACE_CHARS_MAX)
names = st.builds(TopicName, namespaces, topics)

# A few short words, so that patterns and names meet often.
words = st.sampled_from(["a", "b", "ab", "a1", "A"])
close_names = st.builds(
    TopicName,
    st.sampled_from(["default", "Default", "shop"]),
    st.lists(words, min_size=1, max_size=TOPIC_LEVELS_MAX).map(".".join),
)
close_patterns = st.builds(
    lambda namespace, places, rest: TopicPattern(namespace, ".".join([*places, *rest][:TOPIC_LEVELS_MAX])),
    st.sampled_from(["default", "Default", "shop"]),
    st.lists(st.one_of(words, st.just("+")), min_size=1, max_size=TOPIC_LEVELS_MAX),
    st.sampled_from([[], ["#"]]),
)


def regex_of(pattern: TopicPattern) -> re.Pattern[str]:
    """The pattern as a regular expression over the whole name."""
    pieces = {"+": "[^.]+", "#": ".+"}
    body = r"\.".join(pieces.get(level, re.escape(level)) for level in pattern.pattern.split("."))
    return re.compile(f"/{re.escape(pattern.namespace)}/{body}")


def meets(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """The rule of matching, one level at a time."""
    if not pattern or not name:
        return not pattern and not name
    if pattern == ("#",):
        return True
    return pattern[0] in ("+", name[0]) and meets(pattern[1:], name[1:])


def combinations(words: str, lengths: range) -> list[tuple[str, ...]]:
    return [each for length in lengths for each in itertools.product(words, repeat=length)]


def assert_stays_inside(part: str) -> None:
    """Assert that `part`, as one component of a path, names a new entry right below its directory, and no other."""
    assert re.fullmatch(r"[a-z0-9_.-]+", part)
    assert ".." not in part
    assert part not in (".", "..")
    assert len(part.encode()) <= 255
    assert posixpath.normpath(posixpath.join("/data", part)) == f"/data/{part}"


def assert_is_a_name(name: TopicName) -> None:
    """The grammar again, written without regular expressions."""
    assert 1 <= len(name.topic) <= TOPIC_CHARS_MAX
    assert 1 <= len(name.namespace.removesuffix(DEAD_LETTER_SUFFIX)) <= NAMESPACE_CHARS_MAX
    assert 1 <= len(name.levels) <= TOPIC_LEVELS_MAX
    for level in name.levels:
        assert level[:1] in set(string.ascii_lowercase)
        assert set(level) <= set(string.ascii_lowercase + string.digits)
    assert set(name.namespace) <= set(string.ascii_lowercase + string.digits + "_-")


# Parsing


def test_a_bare_topic_is_in_the_default_namespace() -> None:
    assert TopicName.parse("orders.created") == TopicName(DEFAULT_NAMESPACE, "orders.created")
    assert str(TopicName.parse("orders.created")) == "/default/orders.created"


def test_a_full_name_carries_its_namespace() -> None:
    name = TopicName.parse("/shop/orders.created")
    assert (name.namespace, name.topic, name.levels) == ("shop", "orders.created", ("orders", "created"))


@given(names)
@unhurried
def test_a_name_written_and_parsed_again_is_the_same_name(name: TopicName) -> None:
    assert TopicName.parse(str(name)) == name
    assert str(TopicName.parse(str(name))) == str(name)


@given(close_patterns)
@unhurried
def test_a_pattern_written_and_parsed_again_is_the_same_pattern(pattern: TopicPattern) -> None:
    assert TopicPattern.parse(str(pattern)) == pattern
    assert str(TopicPattern.parse(str(pattern))) == str(pattern)


@given(namespaces, topics)
@unhurried
def test_letter_case_makes_no_difference(namespace: str, topic: str) -> None:
    name = TopicName(namespace, topic)
    for change in (str.upper, str.lower, str.swapcase):
        assert TopicName(change(namespace), change(topic)) == name
        assert hash(TopicName(change(namespace), change(topic))) == hash(name)
    assert str(name) == str(name).lower()


@given(names)
@unhurried
def test_every_name_is_its_own_pattern_and_matches_itself(name: TopicName) -> None:
    assert TopicPattern.parse(str(name)).matches(name)


def test_a_name_is_a_small_frozen_value() -> None:
    name = TopicName.parse("orders")
    assert pickle.loads(pickle.dumps(name)) == name
    with pytest.raises(FrozenInstanceError):
        name.topic = "../etc"  # type: ignore[misc]


def test_names_sort_by_namespace_and_then_by_topic() -> None:
    parsed = [TopicName.parse(text) for text in ("/b/a", "/a/z", "/a/b.c", "/a/b")]
    assert [str(name) for name in sorted(parsed)] == ["/a/b", "/a/b.c", "/a/z", "/b/a"]


# Refusals

MALFORMED = [
    *("", ".", "..", "...", "a.", ".a", "a..b", "1", "1a", "a.1", "a.1b", "-a", "a-b", "a_b", "_a", "a b", "a+", "a#"),
    *("/", "//", "///", "/a", "/a/", "//a", "/ /a", "/a//b", "/a/b/", "/a/b/c", "a/b", "a/", "./a", "../a", "a/../b"),
    *("/../a", "/./a", "/a/..", "/a/../b", "/a.b/c", "/shop/1", "\\a", "c:a", "~", "~root", "%2e%2e", "a%2fb", "a\n"),
    *("/a\n/b", "/a/b\n", "\na", "a\0", "/a\0/b", "/a/b\0.txt", " a", "a ", "/a /b", "/+/a", "/#/a", "orders-part-0"),
]


@pytest.mark.parametrize("text", MALFORMED, ids=repr)
def test_a_malformed_name_is_neither_a_name_nor_a_pattern(text: str) -> None:
    with pytest.raises(TopicNotSupported):
        TopicName.parse(text)
    with pytest.raises(TopicNotSupported):
        TopicPattern.parse(text)


@pytest.mark.parametrize("text", ["+", "#", "a.+", "a.#", "+.b", "/shop/#"])
def test_a_wildcard_has_no_place_in_a_name(text: str) -> None:
    with pytest.raises(TopicNotSupported):
        TopicName.parse(text)


@pytest.mark.parametrize(
    "text", ["#.a", "a.#.b", "#.#", "#.+", "a+", "+a", "a#", "#a", "++", "##", "+#", "a.++", "a.*"]
)
def test_a_wildcard_stands_alone_in_its_level_and_the_rest_only_at_the_end(text: str) -> None:
    with pytest.raises(TopicNotSupported):
        TopicPattern.parse(text)


@pytest.mark.parametrize("character", FOREIGN, ids=ascii)
def test_letters_and_digits_of_other_scripts_are_refused_wherever_they_stand(character: str) -> None:
    for text in (character, f"a{character}", f"{character}a", f"a.b{character}", f"/{character}/a", f"/a{character}/a"):
        with pytest.raises(TopicNotSupported):
            TopicName.parse(text)
        with pytest.raises(TopicNotSupported):
            TopicPattern.parse(text)


@given(names, st.sampled_from(FOREIGN + UNSAFE), st.data())
@unhurried
def test_one_strange_character_anywhere_spoils_a_name(name: TopicName, character: str, data: st.DataObject) -> None:
    text = str(name)
    place = data.draw(st.integers(0, len(text)))
    with pytest.raises(TopicNotSupported):
        TopicName.parse(text[:place] + character + text[place:])


@given(st.one_of(st.text(), st.text("aZ09._-/+#:\\\0 é٣"), st.from_regex(r"/?[\w./-]{1,12}", fullmatch=True)))
@example("/../a")
@example("/a/../../etc/passwd")
@unhurried
def test_whatever_is_parsed_stays_inside_its_directory(text: str) -> None:
    try:
        name = TopicName.parse(text)
    except TopicNotSupported:
        return
    assert_is_a_name(name)
    assert_stays_inside(name.namespace)
    assert_stays_inside(name.topic)
    assert text.lower() in (str(name), name.topic)


@given(st.text("aZ0._-/\0", max_size=8), st.text("aZ0._-/\0", max_size=8))
@unhurried
def test_the_constructor_is_as_strict_as_parsing(namespace: str, topic: str) -> None:
    try:
        name = TopicName(namespace, topic)
    except TopicNotSupported:
        return
    assert_is_a_name(name)
    assert TopicName.parse(f"/{namespace}/{topic}") == name


@given(names)
@unhurried
def test_the_path_of_a_name_is_exactly_two_steps_below_the_root(name: TopicName) -> None:
    path = posixpath.normpath(posixpath.join("/data", name.namespace, name.topic))
    assert path.split("/") == ["", "data", name.namespace, name.topic]
    assert_stays_inside(name.namespace)
    assert_stays_inside(name.topic)
    assert_stays_inside(name.partition(PARTITIONS_MAX - 1, PARTITIONS_MAX))


# Lengths


def test_a_topic_has_at_most_255_characters() -> None:
    for length in (1, TOPIC_CHARS_MAX - 1, TOPIC_CHARS_MAX):
        assert len(TopicName.parse("a" * length).topic) == length
        assert len(TopicPattern.parse("a" * length).pattern) == length
    for parse in (TopicName.parse, TopicPattern.parse):
        with pytest.raises(TopicNotSupported, match="at most 255 characters, not 256"):
            parse("a" * (TOPIC_CHARS_MAX + 1))


def test_the_dots_count_and_the_namespace_does_not() -> None:
    four = "abcd." * 4
    assert len(TopicName.parse(f"/{'n' * 60}/{four}{'z' * (TOPIC_CHARS_MAX - len(four))}").topic) == TOPIC_CHARS_MAX
    with pytest.raises(TopicNotSupported, match="at most 255 characters, not 256"):
        TopicName.parse(four + "z" * (TOPIC_CHARS_MAX - len(four) + 1))


def test_a_topic_has_at_most_five_levels() -> None:
    for count in (1, TOPIC_LEVELS_MAX - 1, TOPIC_LEVELS_MAX):
        assert len(TopicName.parse(".".join("abcdef"[:count])).levels) == count
        assert len(TopicPattern.parse(".".join(["+"] * (count - 1) + ["#"])).levels) == count
    with pytest.raises(TopicNotSupported, match="at most 5 levels, not 6"):
        TopicName.parse("a.b.c.d.e.f")
    with pytest.raises(TopicNotSupported, match="at most 5 levels, not 6"):
        TopicPattern.parse("a.b.c.d.e.#")


@pytest.mark.parametrize("make", [TopicName, TopicPattern])
def test_a_namespace_leaves_room_for_the_suffix_of_its_dead_letters(make: type[TopicName | TopicPattern]) -> None:
    for length in (1, 59, 60):
        assert len(make("n" * length, "a").namespace) == length
    with pytest.raises(TopicNotSupported, match="at most 60 characters, not 61"):
        make("n" * 61, "a")


@pytest.mark.parametrize("suffix", ["-dlq", "-DLQ", "-Dlq"])
def test_a_namespace_of_dead_letters_has_at_most_64_characters_in_any_letter_case(suffix: str) -> None:
    for length in (63, 64):
        assert len(TopicName("n" * (length - 4) + suffix, "a").namespace) == length
    with pytest.raises(TopicNotSupported, match="at most 64 characters, not 65"):
        TopicName("n" * 61 + suffix, "a")


# What a name knows


@given(names)
@unhurried
def test_dead_letters_go_to_the_same_topic_in_the_namespace_beside(name: TopicName) -> None:
    if name.namespace.endswith(DEAD_LETTER_SUFFIX):
        return
    assert str(name.dead_letters) == f"/{name.namespace}-dlq/{name.topic}"
    assert TopicName.parse(str(name.dead_letters)) == name.dead_letters
    assert name.dead_letters != name


@pytest.mark.parametrize(
    ("asked", "known", "found"),
    [
        ("nope", ["/default/clicks"], None),
        ("orders.nope", ["/default/orders.clicks"], None),
        ("click", ["/default/clicks", "/default/clocks"], "/default/clicks"),
        ("orders.creatd", ["/default/orders.created", "/default/orders.deleted"], "/default/orders.created"),
        ("order.created", ["/default/orders.created"], "/default/orders.created"),
        ("orders", ["/shop/orders", "/default/borders"], "/default/borders"),
        ("orders", ["/shop/orders"], "/shop/orders"),
        ("/shops/order", ["/shop/orders"], "/shop/orders"),
        ("order", ["/shop/orders"], None),
        ("orders", [], None),
    ],
)
def test_only_a_name_that_is_near_may_have_been_meant(asked: str, known: list[str], found: str | None) -> None:
    meant = nearest(TopicName.parse(asked), map(TopicName.parse, known))
    assert (meant and str(meant)) == found


def test_the_longest_name_still_has_a_place_for_its_dead_letters() -> None:
    name = TopicName("n" * 60, "a" * TOPIC_CHARS_MAX)
    assert len(name.dead_letters.namespace) == NAMESPACE_CHARS_MAX + len(DEAD_LETTER_SUFFIX)
    assert name.dead_letters.topic == name.topic


@pytest.mark.parametrize("text", ["system.a", "SYSTEM.Heartbeat", "system.topic.subscribe", "/shop/system.x"])
def test_what_is_below_system_is_the_brokers_own(text: str) -> None:
    assert TopicName.parse(text).is_system


@pytest.mark.parametrize("text", ["system", "systems", "sys", "orders.system", "/system/orders", "system1.a"])
def test_a_topic_that_only_resembles_system_is_anyones(text: str) -> None:
    assert not TopicName.parse(text).is_system


# Partitions


def test_a_topic_of_one_partition_is_called_by_its_own_name() -> None:
    assert TopicName.parse("orders").partition(0, 1) == "orders"


def test_a_partition_carries_its_number() -> None:
    name = TopicName.parse("/shop/Orders.Created")
    assert [name.partition(i, 3) for i in range(3)] == [f"orders.created-part-{i}" for i in range(3)]


@given(names, names, st.integers(0, 1023), st.integers(0, 1023))
@unhurried
def test_no_two_partitions_share_a_name_and_none_is_called_like_a_topic(
    one: TopicName, other: TopicName, i: int, k: int
) -> None:
    same = (one.topic, i) == (other.topic, k)
    assert (one.partition(i, PARTITIONS_MAX) == other.partition(k, PARTITIONS_MAX)) == same
    with pytest.raises(TopicNotSupported):
        TopicName.parse(one.partition(i, PARTITIONS_MAX))


@pytest.mark.parametrize("partitions", [-1, 0, PARTITIONS_MAX + 1])
def test_a_topic_has_1_to_1024_partitions(partitions: int) -> None:
    name = TopicName.parse("orders")
    assert name.partition(0, 1) == "orders"
    assert name.partition(PARTITIONS_MAX - 1, PARTITIONS_MAX) == "orders-part-1023"
    with pytest.raises(TopicNotSupported, match=f"1 to 1024 partitions, not {partitions}"):
        name.partition(0, partitions)


@pytest.mark.parametrize(("index", "partitions"), [(-1, 1), (1, 1), (-1, 4), (4, 4), (1024, 1024)])
def test_a_partition_outside_the_topic_is_refused(index: int, partitions: int) -> None:
    with pytest.raises(TopicNotSupported, match=f"has partitions 0 to {partitions - 1}, not {index}"):
        TopicName.parse("orders").partition(index, partitions)


@pytest.mark.parametrize("length", [PARTITIONED_CHARS_MAX - 1, PARTITIONED_CHARS_MAX])
def test_the_longest_partitioned_topic_has_a_name_for_every_partition(length: int) -> None:
    name = TopicName.parse("a" * length)
    longest = max(len(name.partition(i, PARTITIONS_MAX)) for i in range(PARTITIONS_MAX))
    assert longest == length + len("-part-1023") <= TOPIC_CHARS_MAX


@pytest.mark.parametrize("length", [PARTITIONED_CHARS_MAX + 1, 248, 249, TOPIC_CHARS_MAX])
def test_a_topic_too_long_for_its_last_partition_gets_none_of_them(length: int) -> None:
    name = TopicName.parse("a" * length)
    for index, partitions in [(0, 2), (1, 2), (0, PARTITIONS_MAX), (9, 10), (10, 11), (1023, PARTITIONS_MAX)]:
        with pytest.raises(TopicNotSupported, match=f"at most 245 characters, not {length}"):
            name.partition(index, partitions)


def test_a_topic_of_one_partition_may_use_the_whole_length() -> None:
    assert len(TopicName.parse("a" * TOPIC_CHARS_MAX).partition(0, 1)) == TOPIC_CHARS_MAX


# Matching


@pytest.mark.parametrize(
    ("pattern", "name", "matched"),
    [
        ("orders.+", "orders.created", True),
        ("orders.+", "orders", False),
        ("orders.+", "orders.created.eu", False),
        ("orders.#", "orders.created", True),
        ("orders.#", "orders.created.eu", True),
        ("orders.#", "orders", False),
        ("#", "orders", True),
        ("+", "orders.created", False),
        ("+.created", "orders.created", True),
        ("+.#", "orders", False),
        ("ORDERS.+", "orders.Created", True),
        ("order.#", "orders.created", False),
        ("/shop/#", "orders", False),
        ("/Shop/#", "/shop/orders", True),
    ],
)
def test_a_plus_is_one_level_and_a_hash_is_at_least_one(pattern: str, name: str, *, matched: bool) -> None:
    assert TopicPattern.parse(pattern).matches(TopicName.parse(name)) is matched


def test_every_pattern_of_two_letters_matches_what_the_rule_says() -> None:
    plain = combinations("ab", range(1, TOPIC_LEVELS_MAX + 1))
    heads = combinations("ab+", range(TOPIC_LEVELS_MAX + 1))
    patterns = [each for each in heads if each] + [(*each, "#") for each in heads if len(each) < TOPIC_LEVELS_MAX]
    parsed = [(each, TopicName.parse(".".join(each))) for each in plain]
    for each in patterns:
        pattern = TopicPattern.parse(".".join(each))
        assert [name for levels, name in parsed if pattern.matches(name)] == [
            name for levels, name in parsed if meets(each, levels)
        ]


@given(close_patterns, close_names)
@settings(unhurried, max_examples=300)
def test_matching_agrees_with_a_regular_expression(pattern: TopicPattern, name: TopicName) -> None:
    assert pattern.matches(name) == (regex_of(pattern).fullmatch(str(name)) is not None)


@given(names, st.data())
@unhurried
def test_a_name_with_levels_made_wild_still_matches_itself_and_only_in_its_namespace(
    name: TopicName, data: st.DataObject
) -> None:
    wild = [data.draw(st.sampled_from([level, "+"])) for level in name.levels]
    kept = data.draw(st.integers(0, len(wild) - 1))
    for shape in (wild, [*wild[:kept], "#"]):
        assert TopicPattern(name.namespace, ".".join(shape)).matches(name)
        assert not TopicPattern(f"{name.namespace[:50]}-other", ".".join(shape)).matches(name)
