"""Handlers of namespaces and topics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from penstock.broker.access.policy import Operation, Resource
from penstock.broker.base.request_fields import topic_name
from penstock.server.api.broker_calls import ask, list_page, sent_fields
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest


async def list_namespaces(request: ApiRequest) -> object:
    return list_page(await ask(request, "system.namespace.list", sent_fields(request.query)), "namespaces", "namespace")


async def get_namespace(request: ApiRequest) -> object:
    return await ask(request, "system.namespace", {"namespace": request.path_params["namespace"]})


async def put_namespace(request: ApiRequest) -> object:
    """Set all defaults of the namespace. A default that the body leaves out is reset."""
    fields = dict.fromkeys(request.body.__struct_fields__) | sent_fields(request.body)
    return await ask(request, "system.namespace", {"namespace": request.path_params["namespace"]} | fields)


async def list_topics(request: ApiRequest) -> object:
    return list_page(await ask(request, "system.topic.catalog", sent_fields(request.query)), "topics", "topic")


async def create_topic(request: ApiRequest) -> object:
    fields = sent_fields(request.body)
    request.check(Operation.CREATE, Resource.topic(topic_name(fields)))
    return await ask(request, "system.topic.create", fields)


async def get_topic(request: ApiRequest) -> object:
    return await ask(request, "system.topic.describe", _topic(request))


async def alter_topic(request: ApiRequest) -> object:
    return await ask(request, "system.topic.alter", _topic(request) | sent_fields(request.body))


async def delete_topic(request: ApiRequest) -> object:
    """Delete a topic. If messages or subscriptions would be lost, that takes two requests: the first is answered 409,
    and deletes nothing. It is an error status so that a client that looks only at the status does not take the topic
    for deleted."""
    answer = await ask(request, "system.topic.delete", _topic(request) | sent_fields(request.query))
    if answer.get("status") == "confirm":
        token = answer["confirm"]
        lost = {name: answer[name] for name in ("messages", "bytes", "subscriptions")}
        raise HttpError(
            HTTPStatus.CONFLICT,
            f"{answer['topic']} has {lost['messages']} messages and {lost['subscriptions']} subscriptions: to delete it"
            f" with them, ask again with ?confirm={token}",
            confirm=token,
            **lost,
        )
    return answer


def _topic(request: ApiRequest) -> dict[str, Any]:
    return {"topic": request.path_params["topic"]}
