"""Strategies that generate schemas, change them as people do over the years, and make values for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from tests.schema.avro.kit import array, enum, field, fixed, logical, map_, record

Draw = Callable[[st.SearchStrategy[Any]], Any]

PRIMITIVE_VALUES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.text("ab\0\x7f", max_size=5).map(str.encode),  # text, since they may be read as a string
    "string": st.text(max_size=5),
}
PRIMITIVES: Final = tuple(PRIMITIVE_VALUES)
LOGICAL: Final = (
    logical("int", "date"),
    logical("int", "time-millis"),
    logical("long", "timestamp-millis"),
    logical("long", "local-timestamp-micros"),
    logical("bytes", "decimal", precision=4, scale=2),
    logical("bytes", "decimal", precision=4, scale=1),
)
LOGICAL_VALUES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "int": st.integers(0, 10_000),
    "long": st.integers(0, 10_000),
    "bytes": st.just(b"\x01"),
}
PROMOTIONS: Final = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


@dataclass
class Garden:
    """A generator of types of every kind, some of which contain themselves. All their names are different."""

    draw: Draw
    logicals: bool
    names: int = 0

    def type(self, depth: int = 3, around: tuple[str, ...] = ()) -> Any:
        grow = self.draw(st.sampled_from(BUSHES if depth else LEAVES))
        return grow(self, depth - 1, around)

    def name(self) -> str:
        self.names += 1
        return f"T{self.names}"

    def simple(self, *_: Any) -> Any:
        return self.draw(st.sampled_from([*PRIMITIVES, *(LOGICAL if self.logicals else ())]))

    def enum(self, *_: Any) -> Any:
        return enum(self.name(), *"ABC"[: self.draw(st.integers(1, 3))])

    def fixed(self, *_: Any) -> Any:
        return fixed(self.name(), self.draw(st.integers(0, 3)))

    def link(self, _: int, around: tuple[str, ...]) -> Any:
        if not around:
            return self.simple()
        name = self.draw(st.sampled_from(around))
        return self.draw(st.sampled_from([["null", name], array(name), map_(["null", name])]))

    def record(self, depth: int, around: tuple[str, ...]) -> Any:
        name = self.name()
        count = self.draw(st.integers(0, 3))
        return record(name, *(field(f"f{each}", self.type(depth, (*around, name))) for each in range(count)))

    def array(self, depth: int, around: tuple[str, ...]) -> Any:
        return array(self.type(depth, around))

    def map(self, depth: int, around: tuple[str, ...]) -> Any:
        return map_(self.type(depth, around))

    def union(self, depth: int, around: tuple[str, ...]) -> Any:
        kinds = self.draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
        more = self.draw(st.lists(st.sampled_from([Garden.record, Garden.enum, Garden.fixed]), max_size=2))
        return [*kinds, *(grow(self, depth, around) for grow in more)]


LEAVES: Final = [Garden.simple, Garden.enum, Garden.fixed, Garden.link]
BUSHES: Final = [*LEAVES, Garden.record, Garden.record, Garden.record, Garden.array, Garden.map, Garden.union]


@st.composite
def schemas(draw: Draw, *, logicals: bool = True) -> Any:
    return Garden(draw, logicals).type()


# Changes


@st.composite
def evolutions(draw: Draw, *, logicals: bool = True) -> tuple[Any, Any]:
    """Draw a schema and a later version of it."""
    before = draw(schemas(logicals=logicals))
    root = [copy.deepcopy(before)]
    for _ in range(draw(st.integers(0, 3))):
        sites = [site for site in _sites(root, 0, in_union=False) if site.changes]
        if sites:
            site = draw(st.sampled_from(sites))
            draw(st.sampled_from(site.changes))(draw, site, root)
    return before, root[0]


@dataclass(frozen=True)
class Site:
    """A position of a type, which can be changed or replaced there."""

    holder: Any
    key: Any
    in_union: bool

    @property
    def type(self) -> Any:
        return self.holder[self.key]

    @property
    def changes(self) -> list[Callable[[Draw, Site, list[Any]], None]]:
        kind = self.type["type"] if isinstance(self.type, dict) else type(self.type).__name__
        bound = self.in_union or "default" in self.holder
        return [*CHANGES.get(kind, ()), *(() if bound else ANYWHERE)]


def _sites(holder: Any, key: Any, *, in_union: bool) -> Iterator[Site]:
    yield Site(holder, key, in_union)
    type_ = holder[key]
    if isinstance(type_, list):
        for index in range(len(type_)):
            yield from _sites(type_, index, in_union=True)
    elif isinstance(type_, dict):
        for each in type_.get("fields", ()):
            yield from _sites(each, "type", in_union=False)
        for part in ("items", "values"):
            if part in type_:
                yield from _sites(type_, part, in_union=False)


def _promote(draw: Draw, site: Site, _: Any) -> None:
    site.holder[site.key] = draw(st.sampled_from(PROMOTIONS.get(str(site.type), [site.type])))


def _replace(draw: Draw, site: Site, _: Any) -> None:
    if not isinstance(site.type, dict):
        site.holder[site.key] = draw(st.sampled_from(PRIMITIVES))


def _wrap(draw: Draw, site: Site, _: Any) -> None:
    if not isinstance(site.type, list) and site.type != "null":
        site.holder[site.key] = draw(st.permutations([site.type, "null"]))


def _add_field(draw: Draw, site: Site, _: Any) -> None:
    name = f"added{len(site.type['fields'])}"
    if name not in str(site.type["fields"]):
        site.type["fields"].append(field(name, "int", **draw(st.sampled_from([{}, {"default": 1}]))))


def _drop_field(draw: Draw, site: Site, _: Any) -> None:
    if site.type["fields"]:
        del site.type["fields"][draw(st.integers(0, len(site.type["fields"]) - 1))]


def _rename_field(draw: Draw, site: Site, _: Any) -> None:
    for each in site.type["fields"][:1]:
        each.update(draw(st.sampled_from([{}, {"aliases": [each["name"]]}])))
        each["name"] = "renamed_" + each["name"]


def _reverse_fields(_: Draw, site: Site, __: Any) -> None:
    site.type["fields"].reverse()


def _rename(draw: Draw, site: Site, root: list[Any]) -> None:
    """Rename a type with an alias within its namespace: a name without a namespace cannot be used from another."""
    if "namespace" not in str(root):
        old = site.type["name"]
        site.type.update(draw(st.sampled_from([{}, {"aliases": [old]}])))
        root[0] = _with_name(root[0], old, "Renamed" + old)


def _with_name(tree: Any, old: str, new: str) -> Any:
    if isinstance(tree, dict):
        return {key: each if key == "aliases" else _with_name(each, old, new) for key, each in tree.items()}
    if isinstance(tree, list):
        return [_with_name(each, old, new) for each in tree]
    return new if tree == old else tree


def _move(_: Draw, site: Site, root: list[Any]) -> None:
    """Move the whole type, or the types within could not name those around it."""
    if site.holder is root and "aliases" not in str(root):
        site.type["namespace"] = "moved"


def _change_symbols(draw: Draw, site: Site, _: Any) -> None:
    site.type["symbols"] = draw(st.sampled_from([["A"], ["C", "B", "A"], ["B"], ["A", "B", "C", "D"]]))
    site.type.pop("default", None)
    if draw(st.booleans()):
        site.type["default"] = site.type["symbols"][0]


def _resize(_: Draw, site: Site, __: Any) -> None:
    site.type["size"] += 1


def _plainly(_: Draw, site: Site, __: Any) -> None:
    site.holder[site.key] = site.type["type"]


def _add_branch(draw: Draw, site: Site, _: Any) -> None:
    present = [branch["type"] if isinstance(branch, dict) else branch for branch in site.type]
    missing = [kind for kind in PRIMITIVES if kind not in present]
    site.type.insert(0, draw(st.sampled_from(missing)))


def _drop_branch(_: Draw, site: Site, __: Any) -> None:
    if site.type and isinstance(site.type[-1], str):
        site.type.pop()


def _reverse_branches(_: Draw, site: Site, __: Any) -> None:
    if all(isinstance(branch, str) for branch in site.type):
        site.type.reverse()


ANYWHERE: Final = [_promote, _replace, _wrap]
_NAMED: Final = [_rename, _move]
CHANGES: Final[Mapping[str, list[Callable[[Draw, Site, list[Any]], None]]]] = {
    "record": [*_NAMED, _add_field, _drop_field, _rename_field, _reverse_fields],
    "enum": [*_NAMED, _change_symbols],
    "fixed": [*_NAMED, _resize],
    "list": [_add_branch, _drop_branch, _reverse_branches],
    **{kind: [_plainly] for kind in ("int", "long", "bytes")},
}


# Values


@st.composite
def values(draw: Draw, tree: Any) -> Any:
    """Draw values as `fastavro` takes them: in a union with the name of the branch."""
    return _Filler(draw, {each["name"]: each for each in _named(tree)}).value(tree, 0)


def _named(tree: Any) -> Iterator[dict[str, Any]]:
    for site in _sites([tree], 0, in_union=False):
        if isinstance(site.type, dict) and "name" in site.type:
            yield site.type


@dataclass(frozen=True)
class _Filler:
    draw: Draw
    names: Mapping[str, Any]

    def value(self, type_: Any, depth: int) -> Any:
        if isinstance(type_, list):
            return self._branch(type_, depth)
        tree = self.names.get(type_, type_) if isinstance(type_, str) else type_
        if isinstance(tree, str):
            return self.draw(PRIMITIVE_VALUES[tree])
        return self._made(tree, depth + 1)

    def _branch(self, branches: list[Any], depth: int) -> Any:
        allowed = [each for each in branches if depth < 4 or each == "null"] or branches
        branch = self.draw(st.sampled_from(allowed))
        name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        return name, self.value(branch, depth + 1)

    def _made(self, tree: Any, depth: int) -> Any:
        match tree["type"]:
            case "record":
                return {each["name"]: self.value(each["type"], depth) for each in tree["fields"]}
            case "enum":
                return self.draw(st.sampled_from(tree["symbols"]))
            case "fixed":
                return self.draw(st.binary(min_size=tree["size"], max_size=tree["size"]))
            case "array":
                return [self.value(tree["items"], depth) for _ in range(self._count(depth))]
            case "map":
                return {f"k{each}": self.value(tree["values"], depth) for each in range(self._count(depth))}
            case kind:
                return self.draw(LOGICAL_VALUES[kind])

    def _count(self, depth: int) -> int:
        return 0 if depth > 4 else self.draw(st.integers(0, 2))
