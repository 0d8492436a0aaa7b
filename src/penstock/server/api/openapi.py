"""The OpenAPI 3.1 description of the API, generated from the routes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from types import UnionType
from typing import Any, Final, get_args

import msgspec

from penstock import __version__
from penstock.broker.access.policy import Operation
from penstock.server.api.errors import FLAT, PLAIN, Dialect
from penstock.server.api.routing import RAW, Parameter, Route, RouteTable

_NAMES: Final = "#/components/schemas/{name}"
_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_ABOUT: Final = (
    "Events under /api, administration and the files of logs under /v1; schemas, their versions and what may change"
    " between them in the dialect that clients of schema registries speak. Errors of the registry are flat: a number"
    " whose first three digits are the status, and a sentence; all others are as on the wire, with a code. Anything may"
    " be answered 400, 401, 403, 405, 406, 413, 415, 422, 429, 500 or 503."
)
_SECURITY: Final = {
    "key": {"type": "http", "scheme": "bearer", "description": "an API key or a JWT"},
    "basic": {"type": "http", "scheme": "basic", "description": "the name of an API key, and the key as the password"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


@lru_cache(maxsize=8)
def encoded(table: RouteTable) -> bytes:
    return msgspec.json.encode(described(table))


def described(table: RouteTable) -> dict[str, Any]:
    """Return the OpenAPI document of these routes, as values for JSON."""
    writer = _Writer(table)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in table.routes:
        paths[route.path][route.method.lower()] = writer.operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/", "description": "the broker that answers this"}],
        "tags": [{"name": name, "description": about} for name, about in table.tags.items()],
        "paths": dict(paths),
        "components": {"schemas": writer.components, "securitySchemes": _SECURITY},
    }


class _Writer:
    def __init__(self, table: RouteTable) -> None:
        self._table = table
        kinds = [kind for route in table.routes for each in (route.body, route.answer) for kind in _choices(each)]
        problems = [each.problem for each in (FLAT, PLAIN)]
        schemas, self.components = msgspec.json.schema_components([*kinds, *problems], ref_template=_NAMES)
        self._schemas = dict(zip(map(str, kinds), schemas, strict=False))

    def operation(self, route: Route) -> dict[str, Any]:
        operation: dict[str, Any] = {
            "operationId": operation_id(route),
            "tags": [route.tag] if route.tag else [],
            "summary": route.about,
            "parameters": [*self._in_path(route), *self._in_query(route), *_in_headers(route)],
            "responses": self._responses(route),
        }
        if route.permission.operation is not Operation.PUBLIC:
            operation["security"] = [
                {},
                *({name: []} for name in _SECURITY),
            ]  # the empty one for a broker without authentication
        if route.body is RAW:
            operation["requestBody"] = {"required": True, "content": {"*/*": {"schema": {}}}}
        elif route.body is not None:
            operation["requestBody"] = {"required": True, "content": _content(route.dialect, self._schema(route.body))}
        return operation

    def _schema(self, kind: Any) -> dict[str, Any]:
        schemas = [self._schemas[str(each)] for each in _choices(kind)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _in_path(self, route: Route) -> Iterable[dict[str, Any]]:
        for name in parameter_names(route):
            yield {"in": "path", "required": True, **_parameter(self._table.path_parameters[name])}

    def _in_query(self, route: Route) -> Iterable[dict[str, Any]]:
        for parameter in route.query:
            yield {"in": "query", "required": False, **_parameter(parameter)}

    def _responses(self, route: Route) -> dict[str, Any]:
        responses = self._good(route)
        numbers: dict[str, list[int]] = defaultdict(list)
        for number in route.errors:
            numbers[str(number)[:3]].append(number)
        for status, errors in sorted(numbers.items()):
            description = f"{HTTPStatus(int(status)).phrase}: {', '.join(map(str, errors))}"
            responses[status] = {"description": description, "content": _problem(route.dialect)}
        responses["default"] = {"description": "refused or failed", "content": _problem(route.dialect)}
        return responses

    def _good(self, route: Route) -> dict[str, Any]:
        if route.media is not None:
            bytes_: dict[str, Any] = {media: {"schema": {}} for media in (route.media, *route.media_too)}
            return {
                "200": {"description": "the whole", "content": bytes_},
                "206": {"description": "the range that was asked for", "content": bytes_},
            }
        answer = self._schema(route.answer) if route.answer is not None else {}
        content = _content(route.dialect, answer) | {media: {"schema": {}} for media in route.media_too}
        return {str(int(route.status)): {"description": "done", "content": content}}


def operation_id(route: Route) -> str:
    """Return the id of the operation, which generated clients and links use as its name."""
    return re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_")


def parameter_names(route: Route) -> list[str]:
    """Return the names of the path's parameters."""
    return _VARIABLE.findall(route.path)


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union type, or the type itself in a tuple. msgspec cannot decode a union of structs, so
    such answers are described member by member."""
    if kind is None:
        return ()
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _content(dialect: Dialect, schema: dict[str, Any]) -> dict[str, Any]:
    return {media: {"schema": schema} for media in dialect.media}


def _problem(dialect: Dialect) -> dict[str, Any]:
    return _content(dialect, {"$ref": _NAMES.format(name=dialect.problem.__name__)})


def _in_headers(route: Route) -> Iterable[dict[str, Any]]:
    for parameter in route.headers:
        yield {"in": "header", "required": False, **_parameter(parameter)}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    one = dict(parameter.schema)
    schema = {"type": "array", "items": one} if parameter.repeated else one
    return {"name": parameter.name, "description": parameter.about, "schema": schema}
