"""Handlers of durable subscriptions, and of external readers that report their positions."""

from __future__ import annotations

from typing import Any

from penstock.server.api.broker_calls import ask, ask_until_disconnect, list_page, sent_fields
from penstock.server.api.request import ApiRequest

_KEYS = ("topic", "subscription")


async def list_all(request: ApiRequest) -> object:
    answer = await ask_until_disconnect(request, "system.subscription.list", sent_fields(request.query))
    return list_page(answer, "subscriptions", *_KEYS)


async def list_of_topic(request: ApiRequest) -> object:
    fields = {"topic": request.path_params["topic"]} | sent_fields(request.query)
    return list_page(await ask_until_disconnect(request, "system.subscription.list", fields), "subscriptions", *_KEYS)


async def list_pipelines(request: ApiRequest) -> object:
    fields = {"reported": True} | sent_fields(request.query)
    answer = await ask_until_disconnect(request, "system.subscription.list", fields)
    subscriptions = list_page(answer, "subscriptions", *_KEYS)
    return {"pipelines": subscriptions.pop("subscriptions")} | subscriptions


async def create(request: ApiRequest) -> object:
    fields = sent_fields(request.body)
    if "from_" in fields:
        fields["from"] = fields.pop("from_")
    return await ask(request, "system.subscription.create", {"topic": request.path_params["topic"]} | fields)


async def get(request: ApiRequest) -> object:
    return await ask_until_disconnect(request, "system.subscription.describe", _subscription(request))


async def delete(request: ApiRequest) -> object:
    return await ask(request, "system.subscription.delete", _subscription(request))


async def seek(request: ApiRequest) -> object:
    return await ask_until_disconnect(
        request, "system.subscription.seek", _subscription(request) | sent_fields(request.body)
    )


async def pause(request: ApiRequest) -> object:
    return await ask(request, "system.subscription.pause", _subscription(request))


async def resume(request: ApiRequest) -> object:
    return await ask(request, "system.subscription.resume", _subscription(request))


async def skip(request: ApiRequest) -> object:
    return await ask(request, "system.subscription.skip", _subscription(request) | sent_fields(request.body))


def _subscription(request: ApiRequest) -> dict[str, Any]:
    return {name: request.path_params[name] for name in _KEYS}
