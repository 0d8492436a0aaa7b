"""Answers about durable subscriptions, and about those who read the log's files and say how far they are."""

from __future__ import annotations

from typing import Any

from penstock.server.api.broker_calls import asked, asked_patiently, given, page
from penstock.server.api.request import Call

_PLACE = ("topic", "subscription")


async def list_all(call: Call) -> object:
    return page(await asked_patiently(call, "system.subscription.list", given(call.query)), "subscriptions", *_PLACE)


async def list_of_topic(call: Call) -> object:
    fields = {"topic": call.named["topic"]} | given(call.query)
    return page(await asked_patiently(call, "system.subscription.list", fields), "subscriptions", *_PLACE)


async def list_pipelines(call: Call) -> object:
    answer = await asked_patiently(call, "system.subscription.list", {"reported": True} | given(call.query))
    found = page(answer, "subscriptions", *_PLACE)
    return {"pipelines": found.pop("subscriptions")} | found


async def create(call: Call) -> object:
    fields = given(call.body)
    if "from_" in fields:
        fields["from"] = fields.pop("from_")
    return await asked(call, "system.subscription.create", {"topic": call.named["topic"]} | fields)


async def get(call: Call) -> object:
    return await asked_patiently(call, "system.subscription.describe", _named(call))


async def delete(call: Call) -> object:
    return await asked(call, "system.subscription.delete", _named(call))


async def seek(call: Call) -> object:
    return await asked_patiently(call, "system.subscription.seek", _named(call) | given(call.body))


async def pause(call: Call) -> object:
    return await asked(call, "system.subscription.pause", _named(call))


async def resume(call: Call) -> object:
    return await asked(call, "system.subscription.resume", _named(call))


async def skip(call: Call) -> object:
    return await asked(call, "system.subscription.skip", _named(call) | given(call.body))


def _named(call: Call) -> dict[str, Any]:
    return {name: call.named[name] for name in _PLACE}
