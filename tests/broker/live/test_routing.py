"""Routing: the trie finds what a scan of all patterns would find, and forgets what is removed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.broker.kit import subscriptions_in

from penstock.broker.live.routing import _REMEMBERED, LiveKind, LiveSubscription, Routes, Trie
from penstock.core.limits import TOPIC_LEVELS_MAX
from penstock.core.names import TopicName, TopicPattern

# A few short words, so that patterns and names meet often.
words = st.sampled_from(["a", "b", "ab", "A"])
spaces = st.sampled_from(["default", "shop"])
names = st.builds(TopicName, spaces, st.lists(words, min_size=1, max_size=TOPIC_LEVELS_MAX).map(".".join))
patterns = st.builds(
    lambda space, places, rest: TopicPattern(space, ".".join([*places, *rest][:TOPIC_LEVELS_MAX])),
    spaces,
    st.lists(words | st.just("+"), min_size=1, max_size=TOPIC_LEVELS_MAX),
    st.sampled_from([[], ["#"]]),
) | st.builds(TopicPattern, spaces, st.just("#"))
clients = st.sampled_from(["ann", "bob", "cat"])
priorities = st.integers(-2, 2)


def brute_force(held: dict[tuple[TopicPattern, str], int], name: TopicName) -> Counter[LiveSubscription]:
    return Counter(
        LiveSubscription(client, priority) for (pattern, client), priority in held.items() if pattern.matches(name)
    )


class TrieAgainstBruteForce(RuleBasedStateMachine):
    """A trie and a list of patterns, compared after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = Trie()
        self.held: dict[tuple[TopicPattern, str], int] = {}

    @rule(pattern=patterns, client=clients, priority=priorities)
    def add(self, pattern: TopicPattern, client: str, priority: int) -> None:
        self.trie.add(pattern, client, priority)
        self.held[pattern, client] = priority

    @rule(pattern=patterns, client=clients)
    def remove(self, pattern: TopicPattern, client: str) -> None:
        assert self.trie.remove(pattern, client) == (self.held.pop((pattern, client), None) is not None)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.held:
            pattern, client = data.draw(st.sampled_from(sorted(self.held)))
            del self.held[pattern, client]
            assert self.trie.remove(pattern, client)

    @rule(name=names)
    def look(self, name: TopicName) -> None:
        assert Counter(self.trie.matching(name)) == brute_force(self.held, name)

    @invariant()
    def holds_what_was_added(self) -> None:
        expected = {(str(pattern), client): priority for (pattern, client), priority in self.held.items()}
        assert subscriptions_in(self.trie) == expected


TestTrieAgainstBruteForce = TrieAgainstBruteForce.TestCase
TestTrieAgainstBruteForce.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
@given(st.dictionaries(st.tuples(patterns, clients), priorities, max_size=30), st.lists(names, min_size=1, max_size=5))
@settings(max_examples=300)
def test_the_trie_finds_what_a_look_at_every_pattern_finds(
    held: dict[tuple[TopicPattern, str], int], wanted: list[TopicName]
) -> None:
    trie = Trie()
    for (pattern, client), priority in held.items():
        trie.add(pattern, client, priority)
    for name in wanted:
        assert Counter(trie.matching(name)) == brute_force(held, name)
    for pattern, client in held:
        assert trie.remove(pattern, client)
    assert trie._root.below == {}
    assert list(trie.matching(wanted[0])) == []


def test_thousands_of_subscriptions_are_still_right() -> None:
    chance = Random(5)
    held: dict[tuple[TopicPattern, str], int] = {}
    trie = Trie()
    for number in range(6000):
        levels = [
            chance.choice(["orders", "users", f"t{chance.randrange(50)}", "+"]) for _ in range(chance.randint(1, 4))
        ]
        pattern = TopicPattern("default", ".".join([*levels, *chance.choice(([], ["#"]))]))
        held[pattern, f"client{number % 500}"] = number
        trie.add(pattern, f"client{number % 500}", number)
    topics = [
        TopicName("default", ".".join(chance.choice(["orders", "users", f"t{chance.randrange(50)}"]) for _ in range(n)))
        for n in (1, 2, 3, 4, 5) * 4
    ]
    for name in topics:
        found = Counter(trie.matching(name))
        assert found == brute_force(held, name)
    assert sum(len(list(trie.matching(name))) for name in topics) > 1000
    for pattern, client in held:
        assert trie.remove(pattern, client)
    assert trie._root.below == {}


def test_the_namespace_is_no_level_of_the_topic() -> None:
    trie = Trie()
    trie.add(TopicPattern.parse("#"), "ann")
    trie.add(TopicPattern.parse("/shop/+"), "bob")
    assert [each.client for each in trie.matching(TopicName.parse("shop"))] == ["ann"]
    assert [each.client for each in trie.matching(TopicName.parse("/shop/a"))] == ["bob"]
    assert list(trie.matching(TopicName.parse("/shop/a.b"))) == []


# Who gets a published message


def test_a_client_with_several_patterns_gets_a_message_once() -> None:
    routes = Routes(Random(1))
    for pattern in ("a.b", "a.+", "a.#", "#"):
        routes.add(LiveKind.PUBLISH, TopicPattern.parse(pattern), "ann")
    routes.add(LiveKind.PUBLISH, TopicPattern.parse("+.b"), "bob")
    assert sorted(routes.subscribers(TopicName.parse("A.B"))) == ["ann", "bob"]


def test_the_kinds_are_apart() -> None:
    routes = Routes(Random(1))
    name, pattern = TopicName.parse("a"), TopicPattern.parse("a")
    routes.add(LiveKind.PUBLISH, pattern, "ann")
    routes.add(LiveKind.REQUEST, pattern, "bob")
    assert routes.subscribers(name) == ("ann",)
    assert routes.server(name) == "bob"
    assert routes.remove(LiveKind.PUBLISH, pattern, "bob") is False
    assert routes.remove(LiveKind.REQUEST, pattern, "bob") is True
    assert routes.server(name) is None
    assert routes.subscribers(name) == ("ann",)


ops = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "look"]),
        st.sampled_from(LiveKind),
        patterns,
        clients,
        priorities,
        names,
    ),
    max_size=60,
)


@pytest.mark.slow
@given(ops)
@settings(max_examples=200)
def test_what_is_remembered_is_forgotten_when_a_subscription_changes(
    story: list[tuple[str, LiveKind, TopicPattern, str, int, TopicName]],
) -> None:
    routes = Routes(Random(1))
    held: dict[LiveKind, dict[tuple[TopicPattern, str], int]] = {kind: {} for kind in LiveKind}
    for what, kind, pattern, client, priority, name in story:
        if what == "add":
            routes.add(kind, pattern, client, priority)
            held[kind][pattern, client] = priority
        elif what == "remove":
            assert routes.remove(kind, pattern, client) == (held[kind].pop((pattern, client), None) is not None)
        publishing = {each.client for each in brute_force(held[LiveKind.PUBLISH], name)}
        found = routes.subscribers(name)
        assert set(found) == publishing
        assert len(found) == len(publishing)
        serving = brute_force(held[LiveKind.REQUEST], name)
        best = max((each.priority for each in serving), default=0)
        allowed = {each.client for each in serving if each.priority == best}
        assert routes.server(name) in (allowed or [None])


def test_the_memory_of_routes_is_bounded() -> None:
    routes = Routes(Random(1))
    routes.add(LiveKind.PUBLISH, TopicPattern.parse("#"), "ann")
    for number in range(_REMEMBERED + 10):
        name = TopicName("default", f"t{number}")
        assert routes.subscribers(name) == ("ann",)
        assert routes.server(name) is None
    assert len(routes._subscribers) <= _REMEMBERED
    assert len(routes._servers) <= _REMEMBERED


# Who gets a request


def served(routes: Routes, times: int = 200) -> Counter[str | None]:
    return Counter(routes.server(TopicName.parse("svc.echo")) for _ in range(times))


def test_only_the_highest_priority_serves() -> None:
    routes = Routes(Random(1))
    for client, priority in (("low", -1), ("mid", 0), ("high", 5)):
        routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), client, priority)
    assert served(routes) == {"high": 200}
    routes.remove(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), "high")
    assert served(routes) == {"mid": 200}


@pytest.mark.parametrize("seed", range(5))
def test_among_equals_all_are_chosen_sooner_or_later(seed: int) -> None:
    routes = Routes(Random(seed))
    for client in ("ann", "bob", "cat"):
        routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.+"), client, 3)
    routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), "dan", 2)
    counts = served(routes, 600)
    assert set(counts) == {"ann", "bob", "cat"}
    assert all(130 < count < 270 for count in counts.values())


def test_a_client_with_two_patterns_is_not_chosen_twice_as_often() -> None:
    routes = Routes(Random(1))
    for pattern in ("svc.echo", "svc.+", "#"):
        routes.add(LiveKind.REQUEST, TopicPattern.parse(pattern), "ann")
    routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), "bob")
    assert 230 < served(routes, 600)["bob"] < 370


def test_the_best_priority_of_a_client_counts() -> None:
    routes = Routes(Random(1))
    routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), "ann", 1)
    routes.add(LiveKind.REQUEST, TopicPattern.parse("#"), "ann", 9)
    routes.add(LiveKind.REQUEST, TopicPattern.parse("svc.echo"), "bob", 5)
    assert served(routes) == {"ann": 200}


def test_a_change_of_priority_counts_from_the_next_request_on() -> None:
    routes = Routes(Random(1))
    pattern = TopicPattern.parse("svc.echo")
    routes.add(LiveKind.REQUEST, pattern, "ann", 1)
    routes.add(LiveKind.REQUEST, pattern, "bob", 2)
    assert served(routes) == {"bob": 200}
    routes.add(LiveKind.REQUEST, pattern, "ann", 3)
    assert served(routes) == {"ann": 200}
    routes.add(LiveKind.REQUEST, pattern, "ann", 2)
    assert set(served(routes)) == {"ann", "bob"}


def test_negative_priorities_are_priorities_too() -> None:
    routes = Routes(Random(1))
    pattern = TopicPattern.parse("svc.echo")
    routes.add(LiveKind.REQUEST, pattern, "ann", -2)
    routes.add(LiveKind.REQUEST, pattern, "bob", -1)
    assert served(routes) == {"bob": 200}


def test_nobody_serves_what_nobody_subscribed_to() -> None:
    assert Routes(Random(1)).server(TopicName.parse("a")) is None
