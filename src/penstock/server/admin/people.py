"""Answers about who is connected, and who may what."""

from __future__ import annotations

from http import HTTPStatus

from penstock.core.errors import ServiceUnavailable
from penstock.server.api.broker_calls import asked, given, page
from penstock.server.api.errors import HttpError
from penstock.server.api.request import Call


async def list_services(call: Call) -> object:
    return await asked(call, "system.service.list", {})


async def list_connections(call: Call) -> object:
    return page(await asked(call, "system.connection.list", given(call.query)), "connections", "id")


async def close_connection(call: Call) -> object:
    return await asked(call, "system.connection.close", {"id": call.named["connection"]} | given(call.query))


async def list_live_subscriptions(call: Call) -> object:
    try:
        return await asked(call, "system.service.subscriptions", {"serviceId": call.named["connection"]})
    except ServiceUnavailable as error:  # as the founding protocol says that it is not there
        raise HttpError(HTTPStatus.NOT_FOUND, error.message) from None


async def list_keys(call: Call) -> object:
    return await asked(call, "system.key.list", {})


async def create_key(call: Call) -> object:
    return await asked(call, "system.key.create", given(call.body))


async def revoke_key(call: Call) -> object:
    return await asked(call, "system.key.revoke", {"key": call.named["key"]})


async def list_bindings(call: Call) -> object:
    return await asked(call, "system.access.show", given(call.query))


async def grant(call: Call) -> object:
    return await asked(call, "system.access.grant", given(call.body))


async def withdraw(call: Call) -> object:
    return await asked(call, "system.access.revoke", given(call.body))
