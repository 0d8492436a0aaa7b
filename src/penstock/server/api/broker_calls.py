"""Asking the broker for somebody who may hang up: what is not waited for any more is not done any longer."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.types import Receive

from penstock.broker.topics.schema_rejections import NotThere
from penstock.core.errors import ServiceUnavailable
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest


async def ask(request: ApiRequest, topic: str, fields: dict[str, Any]) -> Any:
    """The answer of a system topic; what is not there is answered 404."""
    try:
        return await request.ask(topic, fields)
    except NotThere as error:
        raise HttpError(HTTPStatus.NOT_FOUND, error.message, **error.details) from None


async def ask_until_disconnect(request: ApiRequest, topic: str, fields: dict[str, Any]) -> Any:
    """The same for what may take long: it ends if the client hangs up."""
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
    """Returns once the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


def sent_fields(values: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """What was given, as the broker has it: what was left out is left out."""
    if isinstance(values, dict):
        return {name: value for name, value in values.items() if value is not None}
    found = {name: getattr(values, name) for name in values.__struct_fields__}
    return {name: msgspec.to_builtins(value) for name, value in found.items() if value is not UNSET}


def list_page(answer: dict[str, Any], name: str, *keys: str) -> dict[str, Any]:
    """A list, and `next` where there is more: what to ask for `after`."""
    entries = answer[name]
    if not answer.get("truncated") or not entries:
        return {name: entries}
    return {name: entries, "next": " ".join(str(entries[-1][key]) for key in keys)}
