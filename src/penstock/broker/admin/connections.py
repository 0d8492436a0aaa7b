"""System topics about connections: list them, close one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Close, Effect
from penstock.broker.base.replies import SUCCESS, encode_list
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.topics.schema_rejections import NotFound
from penstock.core.clock import iso_time
from penstock.core.errors import ServiceUnavailable
from penstock.core.limits import LIST_ENTRIES_MAX, QUOTED_CHARS_MAX
from penstock.protocol.header import is_request_id

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_REASON_CHARS_MAX: Final = 256


def _list(broker: Broker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List connections in the order of ids. A request with `after`, the last id of the previous answer, gets the ones
    that follow."""
    read.check_known(fields, ("after", "limit"))
    after = read.text(fields, "after").lower() if "after" in fields else ""
    limit = read.number(fields, "limit", LIST_ENTRIES_MAX, at_least=1, at_most=LIST_ENTRIES_MAX)
    clients = sorted((client for client in broker.clients if client.id > after), key=lambda client: client.id)
    entries = (_described(broker, client) for client in clients[:limit])
    return reply(encode_list(broker.answer_bytes_max, "connections", entries, len(clients)))


def _described(broker: Broker, client: Client) -> Fields:
    durable = broker.durable
    return {
        "id": client.id,
        "address": client.address,
        "name": client.name,
        "description": client.description,
        "principal": str(client.principal),
        "connectedAt": iso_time(broker.context.unix_ms_of(client.connected_ms)),
        "lastHeartbeat": iso_time(broker.context.unix_ms_of(client.heard_ms)),
        "errors": client.errors,
        "subscriptions": len(client.subscriptions),
        "consumes": 0 if durable is None else durable.subscriptions.count(client),
        "produces": len(client.producer_topics),
    }


def _close(broker: Broker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Close a connection. It is sent the reason first. Its messages in flight are delivered to other consumers;
    requests that wait for its response fail as unavailable. Raises `NotFound`."""
    read.check_known(fields, ("id", "reason"))
    connection_id = read.text(fields, "id")
    target = broker.clients.get(connection_id.lower()) if is_request_id(connection_id) else None
    if target is None:
        raise NotFound(
            f"there is no connection {connection_id[:QUOTED_CHARS_MAX]!r}: it may be gone by now", field="id"
        )
    reason = read.text(fields, "reason", "no reason was given")[:_REASON_CHARS_MAX]
    error = ServiceUnavailable(f"An operator ended this connection: {reason}")
    end: list[Effect] = [broker.closing_error(target, error), Close(target.id, error)]
    # A client that closes its own connection is answered first.
    return [*reply(SUCCESS), *end] if target is client else [*end, *reply(SUCCESS)]


TOPICS: Final[dict[str, Callable[[Broker, Client, Fields, Reply], list[Effect]]]] = {
    "system.connection.list": _list,
    "system.connection.close": _close,
}
