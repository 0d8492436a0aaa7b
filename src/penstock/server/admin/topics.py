"""Answers about namespaces and topics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from penstock.broker.access.policy import Operation, Resource
from penstock.broker.base.request_fields import topic_name
from penstock.server.api.broker_calls import asked, given, page
from penstock.server.api.errors import HttpError
from penstock.server.api.request import Call


async def list_namespaces(call: Call) -> object:
    return page(await asked(call, "system.namespace.list", given(call.query)), "namespaces", "namespace")


async def get_namespace(call: Call) -> object:
    return await asked(call, "system.namespace", {"namespace": call.named["namespace"]})


async def put_namespace(call: Call) -> object:
    """All of them, as one: what is not named is the default again."""
    fields = dict.fromkeys(call.body.__struct_fields__) | given(call.body)
    return await asked(call, "system.namespace", {"namespace": call.named["namespace"]} | fields)


async def list_topics(call: Call) -> object:
    return page(await asked(call, "system.topic.catalog", given(call.query)), "topics", "topic")


async def create_topic(call: Call) -> object:
    fields = given(call.body)
    call.check(Operation.CREATE, Resource.topic(topic_name(fields)))
    return await asked(call, "system.topic.create", fields)


async def get_topic(call: Call) -> object:
    return await asked(call, "system.topic.describe", _topic(call))


async def alter_topic(call: Call) -> object:
    return await asked(call, "system.topic.alter", _topic(call) | given(call.body))


async def delete_topic(call: Call) -> object:
    """In two steps where there is something to lose. A client that looks at the status alone is not misled."""
    answer = await asked(call, "system.topic.delete", _topic(call) | given(call.query))
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


def _topic(call: Call) -> dict[str, Any]:
    return {"topic": call.named["topic"]}
