"""What is known of a value that somebody wrote, and of its parts: the writer's side of every question about reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.schema.jsonschema.model.keywords import beside
from penstock.schema.jsonschema.model.kinds import ALL, OBJECTS, STRINGS, Kind, Kinds
from penstock.schema.jsonschema.model.patterns import matches
from penstock.schema.jsonschema.model.tree import Node


@dataclass(frozen=True, slots=True)
class Written:
    """It conforms to some schemas, does not conform to others, is of one of these kinds.

    More may be true of it; never less. Made by `known` and the methods here, which see to it that what is equal is the
    same: references and `allOf` are followed, and nodes are in order.
    """

    conforms: tuple[Node, ...] = ()
    violates: tuple[Node, ...] = ()
    kinds: Kinds = ALL
    present: frozenset[str] = frozenset()
    """Names that it has for certain if it is an object."""
    settled: frozenset[tuple[Node, str]] = frozenset()
    """Choices (`anyOf`, `oneOf`, `if`) of which it is known how they went."""
    depth: int = field(default=0, compare=False)
    """How far within the value that was first asked about: where it lies changes nothing about what it is."""

    @property
    def is_anything(self) -> bool:
        return not self.conforms and not self.violates and self.kinds == ALL

    def words(self, keyword: str) -> list[Any]:
        """What its schemas say under a keyword."""
        return [node.keywords[keyword] for node in self.conforms if keyword in node.keywords]

    def conforming(self, *nodes: Node) -> Written:
        return _gathered(replace(self, conforms=(*self.conforms, *nodes)))

    def violating(self, *nodes: Node) -> Written:
        return _gathered(replace(self, violates=(*self.violates, *nodes)))

    def unless_violating(self, node: Node) -> Written:
        """With one thing less known of it."""
        return replace(self, violates=tuple(each for each in self.violates if each is not node))

    def having(self, name: str) -> Written:
        return _gathered(replace(self, present=self.present | {name}, kinds=self.kinds & OBJECTS))

    def of(self, kinds: Kinds) -> Written:
        return _gathered(replace(self, kinds=self.kinds & kinds))

    def settling(self, node: Node, keyword: str) -> Written:
        return replace(self, settled=self.settled | {(node, keyword)})


def known(*conforms: Node, kinds: Kinds = ALL, depth: int = 0) -> Written:
    return _gathered(Written(conforms, kinds=kinds, depth=depth))


def never(node: Node) -> bool:
    """It is `false`: no value conforms."""
    return "false" in node.keywords


def meant(node: Node) -> Node:
    """Itself, or what it refers to if it says nothing else: ways to a definition make no difference."""
    while node.keywords.keys() == {"$ref"} and len(node.keywords["$ref"]) == 1:
        node = node.keywords["$ref"][0]
    return node


def closure(nodes: Iterable[Node]) -> set[Node]:
    """These, and all schemas that are asked about the same value because of them, whether they must hold or not."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += beside(node)
    return found


# Gathering


def _gathered(written: Written) -> Written:
    gathering = _Gathering(written)
    gathering.follow()
    return gathering.result()


class _Gathering:
    """Draws the conclusions from what is known."""

    def __init__(self, written: Written) -> None:
        self._start = written
        self._conforms: set[Node] = set()
        self._violates: set[Node] = set()
        self._kinds = written.kinds
        self._present = set(written.present)
        self._waiting = list(written.conforms)
        self._denied = list(written.violates)

    def follow(self) -> None:
        while self._waiting or self._denied:
            if self._waiting:
                self._take(self._waiting.pop())
            else:
                self._deny(self._denied.pop())
            if not self._waiting and not self._denied:
                self._depend()

    def result(self) -> Written:
        return Written(
            tuple(sorted(self._conforms, key=_serial)),
            tuple(sorted(self._violates, key=_serial)),
            self._kinds,
            frozenset(self._present),
            self._start.settled,
            self._start.depth,
        )

    def _take(self, node: Node) -> None:
        node = meant(node)
        words = node.keywords
        if node in self._conforms or not words:
            return
        self._conforms.add(node)
        self._kinds &= frozenset() if never(node) else words.get("type", ALL)
        if isinstance(words.get("multipleOf"), int):
            self._kinds -= {Kind.FRACTION}
        self._present.update(words.get("required", ()))
        self._waiting += [*words.get("$ref", ()), *words.get("allOf", ())]
        if "not" in words:
            self._denied.append(words["not"])

    def _deny(self, node: Node) -> None:
        node = meant(node)
        words = node.keywords
        if words.keys() == {"type"}:
            self._kinds -= words["type"]
        elif words.keys() == {"not"}:
            self._waiting.append(words["not"])
        elif words.keys() == {"anyOf"}:
            self._denied += words["anyOf"]
        elif not words:
            self._kinds = frozenset()
        else:
            self._violates.add(node)

    def _depend(self) -> None:
        """What an object has makes it have more, and conform to more."""
        if self._kinds != OBJECTS:
            return
        waiting = list(self._present)
        while waiting:
            name = waiting.pop()
            for node in self._conforms:
                needed = set(node.keywords.get("dependentRequired", {}).get(name, ())) - self._present
                self._present |= needed
                waiting += needed
                schema = node.keywords.get("dependentSchemas", {}).get(name)
                if schema is not None and meant(schema).keywords and meant(schema) not in self._conforms:
                    self._waiting.append(schema)


def _serial(node: Node) -> int:
    return node.serial


# Parts


def names(written: Written) -> set[str]:
    """Of properties that its schemas mention. All others are alike, but for patterns."""
    return {name for node in _mentioning(written, "Properties") for name in node.keywords.get("properties", ())} | set(
        written.present
    )


def patterns(written: Written) -> set[str]:
    return {pattern for found in written.words("patternProperties") for pattern in found}


def property_of(written: Written, name: str) -> Written:
    """What is known of its property `name`, should it have one."""
    found: list[Node] = []
    for node in written.conforms:
        found += _property(node, name)
        if "unevaluatedProperties" in node.keywords and not _may_evaluate(node, name):
            found.append(node.keywords["unevaluatedProperties"])
    return known(*found, depth=written.depth + 1)


def unnamed_property_of(written: Written, pattern: str | None = None) -> Written:
    """What is known of a property that its schemas do not mention: one whose name matches `pattern`, and perhaps others
    too, or one whose name matches none of theirs."""
    found: list[Node] = []
    for node in written.conforms:
        found += _unnamed(node, pattern)
        if "unevaluatedProperties" in node.keywords and not _may_evaluate_unnamed(node, written, pattern):
            found.append(node.keywords["unevaluatedProperties"])
    return known(*found, depth=written.depth + 1)


def item_of(written: Written, place: int) -> Written:
    found: list[Node] = []
    for node in written.conforms:
        first = node.keywords.get("prefixItems", ())
        if place < len(first):
            found.append(first[place])
        elif "items" in node.keywords:
            found.append(node.keywords["items"])
        if "unevaluatedItems" in node.keywords and not _may_evaluate_item(node, place):
            found.append(node.keywords["unevaluatedItems"])
    return known(*found, depth=written.depth + 1)


def horizon(written: Written) -> int:
    """From this place on, all items are alike."""
    return max((len(node.keywords.get("prefixItems", ())) for node in _mentioning(written, "Items")), default=0)


def name_of(written: Written) -> Written:
    """What is known of the names of its properties."""
    return known(*written.words("propertyNames"), kinds=STRINGS, depth=written.depth + 1)


def _property(node: Node, name: str) -> list[Node]:
    words = node.keywords
    found = [
        schema
        for pattern, schema in words.get("patternProperties", {}).items()
        if matches(node.document, pattern, name)
    ]
    if name in words.get("properties", ()):
        found.append(words["properties"][name])
    return found or _additional(node)


def _additional(node: Node) -> list[Node]:
    return [node.keywords["additionalProperties"]] if "additionalProperties" in node.keywords else []


def _unnamed(node: Node, pattern: str | None) -> list[Node]:
    matched = node.keywords.get("patternProperties", {})
    if pattern in matched:
        return [matched[pattern]]
    return [] if matched and pattern is not None else _additional(node)


def _mentioning(written: Written, parts: str) -> set[Node]:
    """Its schemas, and where one of them speaks of what was left out (`unevaluated...`), all that may leave it out."""
    return set(written.conforms) | closure(node for node in written.conforms if f"unevaluated{parts}" in node.keywords)


def _may_evaluate(node: Node, name: str) -> bool:
    return any(
        _property(each, name) or (each is not node and "unevaluatedProperties" in each.keywords)
        for each in closure([node])
    )


def _may_evaluate_unnamed(node: Node, written: Written, pattern: str | None) -> bool:
    """A name that matches none of the patterns in `written` may still match those of schemas that perhaps hold too."""
    return any(
        "additionalProperties" in each.keywords
        or ("patternProperties" in each.keywords and (pattern is not None or each not in written.conforms))
        or (each is not node and "unevaluatedProperties" in each.keywords)
        for each in closure([node])
    )


def _may_evaluate_item(node: Node, place: int) -> bool:
    return any(
        "items" in each.keywords
        or "contains" in each.keywords
        or len(each.keywords.get("prefixItems", ())) > place
        or (each is not node and "unevaluatedItems" in each.keywords)
        for each in closure([node])
    )
