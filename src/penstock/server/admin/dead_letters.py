"""Handlers of dead letters. A call that takes long ends if the client disconnects; the changes that it has made by then
remain."""

from __future__ import annotations

from typing import Any, Final

from penstock.server.api.broker_calls import ask, ask_until_disconnect, list_page, sent_fields
from penstock.server.api.request import ApiRequest

_RENAMED: Final = {"previewBytes": "preview_bytes", "redrivesMax": "redrives_max"}


async def list_all(request: ApiRequest) -> object:
    return list_page(await ask(request, "system.deadletter.list", sent_fields(request.query)), "dead_letters", "topic")


async def browse(request: ApiRequest) -> object:
    fields = {_RENAMED.get(name, name): value for name, value in sent_fields(request.query).items()}
    return await ask_until_disconnect(request, "system.deadletter.browse", _topic(request) | fields)


async def redrive(request: ApiRequest) -> object:
    return await ask_until_disconnect(request, "system.deadletter.redrive", _topic(request) | sent_fields(request.body))


async def drop(request: ApiRequest) -> object:
    return await ask_until_disconnect(request, "system.deadletter.drop", _topic(request) | sent_fields(request.body))


def _topic(request: ApiRequest) -> dict[str, Any]:
    return {"topic": request.path_params["topic"]}
