"""Requests to the broker's system topics on behalf of HTTP clients, which may disconnect before the answer comes."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.types import Receive

from penstock.broker.topics.schema_rejections import NotFound
from penstock.core.errors import ServiceUnavailable
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest


async def ask(request: ApiRequest, topic: str, fields: dict[str, Any]) -> Any:
    """Send a request to a system topic, and return its answer. Raises `HttpError` with status 404 if the broker answers
    that something does not exist, and the broker's other errors unchanged."""
    try:
        return await request.ask(topic, fields)
    except NotFound as error:
        raise HttpError(HTTPStatus.NOT_FOUND, error.message, **error.details) from None


async def ask_until_disconnect(request: ApiRequest, topic: str, fields: dict[str, Any]) -> Any:
    """Do the same as `ask`, for a request that may take long. If the client disconnects, the request is cancelled, and
    `ServiceUnavailable` is raised."""
    asking = asyncio.ensure_future(ask(request, topic, fields))
    leaving = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise ServiceUnavailable("the client hung up")
        return asking.result()
    finally:
        asking.cancel()
        leaving.cancel()


async def disconnected(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def sent_fields(values: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """Return only the fields that the client sent, as values of the wire protocol. `values` is a decoded body, or the
    query parameters by name."""
    if isinstance(values, dict):
        return {name: value for name, value in values.items() if value is not None}
    fields = {name: getattr(values, name) for name in values.__struct_fields__}
    return {name: msgspec.to_builtins(value) for name, value in fields.items() if value is not UNSET}


def list_page(answer: dict[str, Any], name: str, *keys: str) -> dict[str, Any]:
    """Return one page of a list as an answer. `name` is the field of the broker's answer with the entries. If more
    entries follow, `next` is added: the values of `keys` in the last entry, which the client sends as `after` to get
    the next page."""
    entries = answer[name]
    if not answer.get("truncated") or not entries:
        return {name: entries}
    return {name: entries, "next": " ".join(str(entries[-1][key]) for key in keys)}
