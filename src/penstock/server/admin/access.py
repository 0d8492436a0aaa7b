"""Handlers of services, connections, keys and role bindings."""

from __future__ import annotations

from http import HTTPStatus

from penstock.core.errors import ServiceUnavailable
from penstock.server.api.broker_calls import ask, list_page, sent_fields
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest


async def list_services(request: ApiRequest) -> object:
    return await ask(request, "system.service.list", {})


async def list_connections(request: ApiRequest) -> object:
    return list_page(await ask(request, "system.connection.list", sent_fields(request.query)), "connections", "id")


async def close_connection(request: ApiRequest) -> object:
    fields = {"id": request.path_params["connection"]} | sent_fields(request.query)
    return await ask(request, "system.connection.close", fields)


async def list_live_subscriptions(request: ApiRequest) -> object:
    try:
        return await ask(request, "system.service.subscriptions", {"serviceId": request.path_params["connection"]})
    except ServiceUnavailable as error:  # the wire protocol answers an unknown id with this
        raise HttpError(HTTPStatus.NOT_FOUND, error.message) from None


async def list_keys(request: ApiRequest) -> object:
    return await ask(request, "system.key.list", {})


async def create_key(request: ApiRequest) -> object:
    return await ask(request, "system.key.create", sent_fields(request.body))


async def revoke_key(request: ApiRequest) -> object:
    return await ask(request, "system.key.revoke", {"key": request.path_params["key"]})


async def list_bindings(request: ApiRequest) -> object:
    return await ask(request, "system.access.show", sent_fields(request.query))


async def grant(request: ApiRequest) -> object:
    return await ask(request, "system.access.grant", sent_fields(request.body))


async def withdraw(request: ApiRequest) -> object:
    return await ask(request, "system.access.revoke", sent_fields(request.body))
