"""Rows of an HTTP API: what may be asked, where and with what. Paths are matched before they are decoded.

A subject may have a slash in its name, written `%2F`: whoever decodes a path first can no longer tell.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from penstock.broker.access.policy import SERVER, Operation, Resource
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.core.names import TopicName, TopicPattern
from penstock.server.api.errors import PLAIN, Dialect, HttpError, WrongMethod, is_own
from penstock.server.http_scope import target_path
from penstock.storage.inspect.data_reader import parse_log

_ESCAPED: Final = re.compile("(?:[^%]|%[0-9A-Fa-f]{2})*")
_WHOLE: Final = re.compile("-?[0-9]{1,10}")
_NUMBER_MAX: Final = 2**31 - 1
"""Clients in other languages hold these numbers in 32 bits."""


_OFTEN_CHARS_MAX: Final = 256
"""Of a query that is remembered."""

RAW: Final = bytes
"""A row's `body`: the handler has the bytes, whatever they are."""

SCOPE_ROUTE: Final = "penstock.route"
"""Where in an ASGI scope the path of its row stands, once that is found: for those who count."""


# what a row says


class Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Permission:
    """What whoever asks must be allowed."""

    operation: Operation
    of: str | None = None
    """Which variable names what it is done to; None: the server."""
    query: bool = False
    """The variable stands behind the question mark, or else in the path."""
    checked: bool = True
    """False: what it is done to is in neither, and the handler checks it."""

    def resource(self, path_params: Mapping[str, Any]) -> Resource:
        """Raises `TopicNotSupported` for a name that no topic can have, `RegistryError` for no subject's."""
        match self.of:
            case None:
                return SERVER
            case "topic":
                return Resource.topic(TopicName.parse(path_params["topic"]))
            case "topics":
                return Resource.topic(TopicPattern.parse(path_params["topic"]))
            case "log":
                return _topic_of_log(path_params)
            case "subject":
                return Resource.subject(path_params["subject"])
            case _:
                return Resource.namespace(path_params["namespace"])


def _topic_of_log(path_params: Mapping[str, Any]) -> Resource:
    """What is no log is nowhere, and so the namespace's."""
    name, _ = parse_log(path_params["namespace"], path_params["log"])
    return Resource.namespace(path_params["namespace"]) if name is None else Resource.topic(name)


PUBLIC: Final = Permission(Operation.PUBLIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Something in the path or behind the question mark."""

    name: str
    about: str
    parse: Callable[[str], Any]
    """Of what was written; raises `ValueError` where that is nothing of the kind, or an error of its own."""
    schema: Mapping[str, Any]
    """The same, as JSON Schema."""
    default: Any = None
    alias: str | None = None
    """Another name that some clients have for it."""
    repeated: bool = False
    """It may be there several times, and all count; or else the first."""

    def read(self, text: str) -> Any:
        try:
            return self.parse(text)
        except ValueError:
            wanted = _allowed_values(self.schema)
            raise HttpError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{self.name}={quoted(text)} is wrong: {wanted}{self.about}",
                field=self.name,
            ) from None


def _allowed_values(schema: Mapping[str, Any]) -> str:
    """What may be written there; nothing where its description says that."""
    match schema:
        case {"enum": [*words]}:
            return f"one of {', '.join(words)}; "
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"a whole number from {least} to {most}; "
        case {"type": "boolean"}:
            return "true or false; "
        case _:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One thing that can be asked."""

    method: Method
    path: str
    """As OpenAPI writes it: `/subjects/{subject}/versions`."""
    handler: Callable[[Any], Awaitable[object]]
    about: str
    permission: Permission
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    """Those that say what is wanted, by their names in lower case; the handler has them as they were sent."""
    body: Any = None
    """What the body is decoded as, or `RAW`; None where none is looked at."""
    body_bytes_max: int = 0
    answer: Any = None
    """What is encoded as the answer."""
    status: int = HTTPStatus.OK
    """Of an answer that is no refusal."""
    media: str | None = None
    """What the answer is, where it is no JSON but bytes, or some of them."""
    media_too: tuple[str, ...] = ()
    """What else it is, where whoever asks would rather have that."""
    errors: tuple[int, ...] = ()
    """Numbers of the errors that belong to it, besides those anything may meet."""
    dialect: Dialect = PLAIN
    tag: str = field(default="", compare=False)
    """The room it is of: the table says it, and who reads its description finds it by that."""


def flag(name: str, about: str, *, default: bool = False, alias: str | None = None) -> Parameter:
    return Parameter(
        name=name,
        about=about,
        parse=_flag,
        schema={"type": "boolean", "default": default},
        default=default,
        alias=alias,
    )


def number(name: str, about: str, default: int | None = None, *, at_least: int = 0) -> Parameter:
    def parse(text: str) -> int:
        return whole(text, at_least)

    schema: dict[str, Any] = {"type": "integer", "minimum": at_least, "maximum": _NUMBER_MAX}
    if default is not None:
        schema["default"] = default
    return Parameter(name=name, about=about, parse=parse, schema=schema, default=default)


def choice(name: str, about: str, known: Iterable[str], default: str) -> Parameter:
    words = tuple(known)

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    schema = {"type": "string", "enum": list(words), "default": default}
    return Parameter(name=name, about=about, parse=parse, schema=schema, default=default)


def text(name: str, about: str, default: str | None = "") -> Parameter:
    return Parameter(name=name, about=about, parse=str, schema={"type": "string"}, default=default)


def texts(name: str, about: str) -> Parameter:
    """One that may be repeated."""
    return replace(text(name, about), repeated=True)


def _flag(text: str) -> bool:
    """Python's own `True` too: some clients write it."""
    found = {"true": True, "false": False}.get(text.lower())
    if found is None:
        raise ValueError
    return found


def whole(text: str, at_least: int) -> int:
    if _WHOLE.fullmatch(text) is None or not at_least <= int(text) <= _NUMBER_MAX:
        raise ValueError
    return int(text)


def quoted(text: str) -> str:
    return repr(text[:QUOTED_CHARS_MAX])


# escapes


def percent_decoded(raw: str) -> str:
    """What was escaped with `%`, strictly. Raises `HttpError`."""
    if "%" not in raw:
        return raw
    if _ESCAPED.fullmatch(raw) is None:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{quoted(raw)} has a % without two hexadecimal digits behind it")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{quoted(raw)} is not escaped UTF-8") from None


def read_query(raw: str, known: Iterable[Parameter], *, only: bool = False) -> dict[str, Any]:
    """The parameters of a row by name. The first of several counts, unless they are `repeated`.

    Others than these are nobody's business, or where there are `only` these, a mistake: one in the name of a filter
    would show everything.
    """
    given = _given_often(raw) if len(raw) <= _OFTEN_CHARS_MAX else _given(raw)
    if only:
        _check_known(given, tuple(known))
    return {each.name: _value(each, given) for each in known}


def _given(raw: str) -> Mapping[str | None, list[str]]:
    """What is written there, by name. Not to be changed."""
    given: dict[str | None, list[str]] = {}
    for pair in raw.split("&") if raw else ():
        name, _, value = pair.replace("+", " ").partition("=")
        given.setdefault(percent_decoded(name), []).append(percent_decoded(value))
    return given


_given_often: Final = lru_cache(maxsize=256)(_given)
"""The same: a client that posts one message after the other asks in the same words each time."""


def _check_known(given: Iterable[str | None], known: tuple[Parameter, ...]) -> None:
    for name in given:
        if name and all(name not in (each.name, each.alias) for each in known):
            names = [each.name for each in known]
            there = f"there are {', '.join(names)}" if names else "there are none"
            raise HttpError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{quoted(name)} is no parameter of this: {there}",
                field=name[:QUOTED_CHARS_MAX],
                known=names,
            )


def _value(parameter: Parameter, given: Mapping[str | None, list[str]]) -> Any:
    for name in (parameter.name, parameter.alias):
        if name in given:
            found = given[name]
            return [parameter.read(each) for each in found] if parameter.repeated else parameter.read(found[0])
    return [] if parameter.repeated else parameter.default


# the table


@dataclass(slots=True)
class _Node:
    """Where the rows of a table stand, one level of their paths each."""

    literals: dict[str, _Node] = field(default_factory=dict)
    variable: _Node | None = None
    name: str = ""
    routes: dict[str, Route] = field(default_factory=dict)

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.literals.setdefault(segment, _Node())
        self.variable = self.variable or _Node(name=segment.strip("{}"))
        return self.variable


class RouteTable:
    """Rows by method and path. A segment that stands in a row goes before one that may be anything."""

    def __init__(
        self,
        routes: Iterable[Route],
        variables: Mapping[str, Parameter],
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`tags`: what each room is about."""
        self.routes = tuple(routes)
        self.variables = variables
        self.tags = tags
        self._root = _Node()
        self._fixed: dict[tuple[str, str], Route] = {}
        """Those whose path names nothing, by the method and the path as it is usually written."""

        for route in self.routes:
            self._place(route)
            if "{" not in route.path:
                self._fixed[route.method.value, route.path] = route

    def _place(self, route: Route) -> None:
        node = self._root
        for segment in route.path.strip("/").split("/") if route.path != "/" else ():
            node = node.child(segment)
        node.routes[route.method] = route
        if route.method is Method.GET:
            node.routes["HEAD"] = route

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, Any]]:
        """The row and what its path names. Raises `HttpError` 404 where there is none.

        Where there are others for the same path it is 405, but in the registry's dialect, which does not know that.
        """
        fixed = self._fixed.get((method, raw_path))
        if fixed is not None:
            return fixed, {}
        node, path_params = self._root, {}
        for segment in _segments(raw_path):
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
            elif node.variable is not None and segment:
                node = node.variable
                path_params[node.name] = segment
            else:
                raise _not_found(method, raw_path)
        route = node.routes.get(method)
        if route is None:
            raise _not_found(method, raw_path, node.routes)
        return route, {name: self.variables[name].read(value) for name, value in path_params.items()}


def _segments(raw_path: str) -> list[str]:
    """One slash at the end is one too many, and forgiven; a proxy may ask with the whole address."""
    path = target_path(raw_path).removeprefix("/").removesuffix("/")
    return [percent_decoded(segment) for segment in path.split("/")] if path else []


def _not_found(method: str, raw_path: str, others: Mapping[str, Route] | None = None) -> HttpError:
    said = f"there is no {quoted(f'{method} {raw_path}')} here"
    if others and all(is_own(each.path) for each in others.values()):
        allowed = tuple(map(str, others))
        return WrongMethod(f"{said}, only {', '.join(allowed)}", allowed)
    return HttpError(HTTPStatus.NOT_FOUND, f"{said}: see /openapi.json")
