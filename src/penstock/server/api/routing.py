"""Routes of the HTTP API: their methods, paths, parameters and permissions.

Paths are split into segments before they are decoded. A subject may have a slash in its name, written `%2F`: after
decoding, that could not be told from a separator.
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
"""The largest number that a parameter may be: clients in other languages hold these in 32 bits."""


_OFTEN_CHARS_MAX: Final = 256
"""The longest query string, in characters, whose parsed form is cached."""

RAW: Final = bytes
"""The value of `Route.body` for a handler that gets the body as bytes, not decoded."""

SCOPE_ROUTE: Final = "penstock.route"
"""The key in an ASGI scope under which the matched route's path is stored, for metrics."""


# declarations


class Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Permission:
    """The permission that a client needs for a route, and the parameter that names the resource."""

    operation: Operation
    of: str | None = None
    """The kind of the parameter that names the resource: `topic`, `topics` for a pattern of topics, `log`, `subject` or
    `namespace`; None if the resource is the server."""
    query: bool = False
    """True if that parameter is in the query instead of the path."""
    checked: bool = True
    """False if no parameter names the resource. Then the permission is not checked before the handler runs: the handler
    does it."""

    def resource(self, path_params: Mapping[str, Any]) -> Resource:
        """Return the resource that the parameters name. Raises `TopicNotSupported` or `RegistryError` for an invalid
        topic or subject."""
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
    """Return the topic that a log's directory name belongs to; its namespace if that is not the name of a log."""
    name, _ = parse_log(path_params["namespace"], path_params["log"])
    return Resource.namespace(path_params["namespace"]) if name is None else Resource.topic(name)


PUBLIC: Final = Permission(Operation.PUBLIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the path, the query or a header."""

    name: str
    about: str
    parse: Callable[[str], Any]
    """The parser of the text. It raises `ValueError`, or a `PenstockError` of its own, if the text is invalid."""
    schema: Mapping[str, Any]
    """The JSON Schema of valid values."""
    default: Any = None
    alias: str | None = None
    """Another name that some clients use."""
    repeated: bool = False
    """True if the parameter is a list of all its occurrences; False if only the first counts."""

    def read(self, text: str) -> Any:
        try:
            return self.parse(text)
        except ValueError:
            allowed = _allowed_values(self.schema)
            raise HttpError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{self.name}={quoted(text)} is wrong: {allowed}{self.about}",
                field=self.name,
            ) from None


def _allowed_values(schema: Mapping[str, Any]) -> str:
    """Return the valid values as a phrase for an error message; an empty text if the parameter's description names
    them."""
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
    """One operation of the API: a method and a path, what it takes and answers, and its handler."""

    method: Method
    path: str
    """The path as in OpenAPI: `/subjects/{subject}/versions`."""
    handler: Callable[[Any], Awaitable[object]]
    about: str
    permission: Permission
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    """The headers that the handler uses, with names in lower case. They are passed on as text, and not parsed."""
    body: Any = None
    """The type that the body is decoded to, or `RAW`; None if the body is not read."""
    body_bytes_max: int = 0
    answer: Any = None
    """The type of the answer, for the API's description."""
    status: int = HTTPStatus.OK
    """The status of a successful answer."""
    media: str | None = None
    """The media type of an answer of bytes, of which a client may request ranges; None if the answer is JSON."""
    media_too: tuple[str, ...] = ()
    """Further media types of the answer that a client may ask for with Accept."""
    errors: tuple[int, ...] = ()
    """The error numbers that this operation may answer with, besides those of every operation, for the API's
    description."""
    dialect: Dialect = PLAIN
    tag: str = field(default="", compare=False)
    """The group of the operation in the API's description. The route table sets it, to the name of the folder that the
    route comes from."""


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
    """Return a parameter for a list of texts: each occurrence adds one."""
    return replace(text(name, about), repeated=True)


def _flag(text: str) -> bool:
    """Parse a flag, `true` or `false`, in lower or upper case: some clients send `True`, as Python writes it. Raises
    `ValueError` for anything else."""
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ValueError
    return value


def whole(text: str, at_least: int) -> int:
    if _WHOLE.fullmatch(text) is None or not at_least <= int(text) <= _NUMBER_MAX:
        raise ValueError
    return int(text)


def quoted(text: str) -> str:
    return repr(text[:QUOTED_CHARS_MAX])


# decoding


def percent_decoded(raw: str) -> str:
    """Decode percent escapes. Raises `HttpError` (400) if an escape is incomplete, or if the result is not UTF-8."""
    if "%" not in raw:
        return raw
    if _ESCAPED.fullmatch(raw) is None:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{quoted(raw)} has a % without two hexadecimal digits behind it")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{quoted(raw)} is not escaped UTF-8") from None


def read_query(raw: str, known: Iterable[Parameter], *, only: bool = False) -> dict[str, Any]:
    """Return the parsed query parameters of a route by name. A parameter that was not sent has its default. If one is
    sent several times, the first counts, unless it is `repeated`.

    Unknown names are ignored. With `only`, they raise `HttpError` (422): a misspelt filter would otherwise return
    everything. So does an invalid value.
    """
    values = _given_often(raw) if len(raw) <= _OFTEN_CHARS_MAX else _given(raw)
    if only:
        _check_known(values, tuple(known))
    return {parameter.name: _value(parameter, values) for parameter in known}


def _given(raw: str) -> Mapping[str | None, list[str]]:
    """Return the decoded values of a query string by name. The result may be cached, so callers must not change it."""
    values: dict[str | None, list[str]] = {}
    for pair in raw.split("&") if raw else ():
        name, _, value = pair.replace("+", " ").partition("=")
        values.setdefault(percent_decoded(name), []).append(percent_decoded(value))
    return values


_given_often: Final = lru_cache(maxsize=256)(_given)
"""The same function with a cache, for short queries: a client that posts one message after the other sends the same
query each time."""


def _check_known(sent: Iterable[str | None], known: tuple[Parameter, ...]) -> None:
    for name in sent:
        if name and all(name not in (parameter.name, parameter.alias) for parameter in known):
            names = [parameter.name for parameter in known]
            there = f"there are {', '.join(names)}" if names else "there are none"
            raise HttpError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"{quoted(name)} is no parameter of this: {there}",
                field=name[:QUOTED_CHARS_MAX],
                known=names,
            )


def _value(parameter: Parameter, values: Mapping[str | None, list[str]]) -> Any:
    for name in (parameter.name, parameter.alias):
        if name in values:
            texts_sent = values[name]
            return (
                [parameter.read(each) for each in texts_sent] if parameter.repeated else parameter.read(texts_sent[0])
            )
    return [] if parameter.repeated else parameter.default


# matching


@dataclass(slots=True)
class _Node:
    """A node of the tree of paths: one segment. `variable` is the child for a segment that is a path parameter, whose
    name is in the child's `name`."""

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
    """The routes by method and path. Where a fixed segment and a path parameter both match, the fixed segment wins."""

    def __init__(
        self,
        routes: Iterable[Route],
        path_parameters: Mapping[str, Parameter],
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Build the table. `path_parameters` has the parameters of all paths by name, `tags` the description of each
        group of operations by its name."""
        self.routes = tuple(routes)
        self.path_parameters = path_parameters
        self.tags = tags
        self._root = _Node()
        self._fixed: dict[tuple[str, str], Route] = {}
        """The routes without path parameters by method and path, to find them without splitting the path."""

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
        """Return the route and its parsed path parameters by name. Raises `HttpError` with status 404 if no route
        matches.

        Raises `WrongMethod` (405) if the path has routes with other methods. In the registry's dialect, which has no
        405, that is 404 too.
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
        return route, {name: self.path_parameters[name].read(value) for name, value in path_params.items()}


def _segments(raw_path: str) -> list[str]:
    """Split the path into decoded segments. One extra slash at its end is ignored. `raw_path` may be a whole URL, as a
    proxy sends it."""
    path = target_path(raw_path).removeprefix("/").removesuffix("/")
    return [percent_decoded(segment) for segment in path.split("/")] if path else []


def _not_found(method: str, raw_path: str, others: Mapping[str, Route] | None = None) -> HttpError:
    message = f"there is no {quoted(f'{method} {raw_path}')} here"
    if others and all(is_own(each.path) for each in others.values()):
        allowed = tuple(map(str, others))
        return WrongMethod(f"{message}, only {', '.join(allowed)}", allowed)
    return HttpError(HTTPStatus.NOT_FOUND, f"{message}: see /openapi.json")
