"""Routing: which connections get a message. Patterns are in a trie; the routes of a topic are cached until a
subscription changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from penstock.core.names import TopicName, TopicPattern

ONE_LEVEL: Final = "+"
THE_REST: Final = "#"
_REMEMBERED: Final = 10_000  # topics with cached routes; past this, the cache is cleared


class LiveKind(StrEnum):
    """The kind of a live subscription: `PUBLISH` gets every published message, `REQUEST` gets a share of the
    requests."""

    PUBLISH = "publish"
    REQUEST = "request"


class LiveSubscription(NamedTuple):
    client: str
    priority: int
    """The priority for requests: only subscribers with the highest get them. Published messages ignore it."""


class _Node:
    """A node of the trie: the nodes of the next level, and the subscribers of the pattern that ends here."""

    __slots__ = ("below", "members")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.members: dict[str, int] = {}


class Trie:
    """Topic patterns of one kind of subscription, each with its subscribers and their priorities."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: TopicPattern, client: str, priority: int = 0) -> None:
        node = self._root
        for level in _path(pattern):
            node = node.below.setdefault(level, _Node())
        node.members[client] = priority

    def remove(self, pattern: TopicPattern, client: str) -> bool:
        """Remove a subscription, and nodes that have become empty. Returns False if there was no such subscription."""
        passed = [self._root]
        path = _path(pattern)
        for level in path:
            node = passed[-1].below.get(level)
            if node is None:
                return False
            passed.append(node)
        if passed[-1].members.pop(client, None) is None:
            return False
        for node, level in zip(reversed(passed[:-1]), reversed(path), strict=True):
            child = node.below[level]
            if child.members or child.below:
                break
            del node.below[level]
        return True

    def matching(self, name: TopicName) -> Iterator[LiveSubscription]:
        """Yield every subscription whose pattern matches. A client is yielded once for each of its patterns."""
        nodes = [self._root]
        for level in _path(name):
            for node in nodes:
                yield from _members(node.below.get(THE_REST))
            nodes = [
                found for node in nodes for key in (level, ONE_LEVEL) if (found := node.below.get(key)) is not None
            ]
        for node in nodes:
            yield from _members(node)


def _path(name: TopicName | TopicPattern) -> tuple[str, ...]:
    """Return the levels of a name or pattern; the first is the namespace, which is never a wildcard."""
    return (name.namespace, *name.levels)


def _members(node: _Node | None) -> Iterator[LiveSubscription]:
    if node is not None:
        for client, priority in node.members.items():
            yield LiveSubscription(client, priority)


class Routes:
    """The live subscriptions, by kind."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tries = {kind: Trie() for kind in LiveKind}
        self._subscribers: dict[TopicName, tuple[str, ...]] = {}
        self._servers: dict[TopicName, tuple[str, ...]] = {}
        self.allowed: Callable[[LiveKind, str, TopicName], bool] | None = None
        """A function that returns whether access control lets a client receive a topic; None allows all. Its results
        are cached: call `forget` when they may change."""

    def add(self, kind: LiveKind, pattern: TopicPattern, client: str, priority: int = 0) -> None:
        self._tries[kind].add(pattern, client, priority)
        self._forget(kind)

    def remove(self, kind: LiveKind, pattern: TopicPattern, client: str) -> bool:
        self._forget(kind)
        return self._tries[kind].remove(pattern, client)

    def subscribers(self, name: TopicName) -> tuple[str, ...]:
        """Return all clients that a published message goes to, each once."""
        clients = self._subscribers.get(name)
        if clients is None:
            matching = self._matching(LiveKind.PUBLISH, name)
            unique = tuple(dict.fromkeys(subscription.client for subscription in matching))
            clients = _remember(self._subscribers, name, unique)
        return clients

    def server(self, name: TopicName) -> str | None:
        """Return the client that gets the next request: a random one of those with the highest priority. None if there
        is none."""
        servers = self._servers.get(name)
        if servers is None:
            servers = _remember(self._servers, name, _highest(self._matching(LiveKind.REQUEST, name)))
        if not servers:
            return None
        return servers[0] if len(servers) == 1 else self._random.choice(servers)

    def _matching(self, kind: LiveKind, name: TopicName) -> Iterator[LiveSubscription]:
        matching, allowed = self._tries[kind].matching(name), self.allowed
        if allowed is None:
            return matching
        return (subscription for subscription in matching if allowed(kind, subscription.client, name))

    def forget(self) -> None:
        """Drop the cached routes, so that permissions are checked again."""
        for kind in LiveKind:
            self._forget(kind)

    def _forget(self, kind: LiveKind) -> None:
        (self._subscribers if kind is LiveKind.PUBLISH else self._servers).clear()


def _remember(known: dict[TopicName, tuple[str, ...]], name: TopicName, clients: tuple[str, ...]) -> tuple[str, ...]:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[name] = clients
    return clients


def _highest(matching: Iterator[LiveSubscription]) -> tuple[str, ...]:
    best: dict[str, int] = {}
    for client, priority in matching:
        best[client] = max(priority, best.get(client, priority))
    top = max(best.values(), default=0)
    return tuple(client for client, priority in best.items() if priority == top)
