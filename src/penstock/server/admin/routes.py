"""The routes of the admin API."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.broker.access.policy import Operation
from penstock.broker.admin.messages import PAGE_MESSAGES, PAGE_MESSAGES_MAX
from penstock.broker.reads.message_json import PREVIEW_BYTES, PREVIEW_BYTES_MAX
from penstock.broker.reads.scan import SCAN_MESSAGES, SCAN_MESSAGES_MAX
from penstock.core.dead_letter_attributes import REDRIVES_CEILING, REDRIVES_MAX
from penstock.core.limits import KIB, LIST_ENTRIES_MAX, MIB, PARTITIONS_MAX
from penstock.server.admin import access, answers, bodies, dead_letters, messages, subscriptions, topics
from penstock.server.api.routing import Method, Parameter, Permission, Route, text

_BODY_BYTES_MAX: Final = 64 * KIB
_MESSAGE_BODY_BYTES_MAX: Final = 8 * MIB
"""The largest body of a request that publishes one message: enough for a payload of 1 MiB in which every character is
escaped. Larger messages are published through a client library or `/api/events`."""
_DIGITS: Final = re.compile("[0-9]{1,19}")
_GET, _POST, _PUT, _PATCH, _DELETE = Method.GET, Method.POST, Method.PUT, Method.PATCH, Method.DELETE

# path parameters

_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1}


def _path_parameter(name: str, about: str) -> Parameter:
    return Parameter(name=name, about=about, parse=str, schema=_NAME)


PATH_PARAMETERS: Final = {
    "topic": _path_parameter("topic", "a topic's name; that of another namespace with it, as %2Fnamespace%2Ftopic"),
    "namespace": _path_parameter("namespace", "of topics"),
    "message": _path_parameter("message", "an offset, or the id of a message"),
    "subscription": _path_parameter("subscription", "the name of a durable subscription"),
    "connection": _path_parameter("connection", "the id of a connection, which is its serviceId"),
    "key": _path_parameter("key", "the id of a key, as it is listed"),
}

# query parameters


def _text(name: str, about: str) -> Parameter:
    return text(name, about, None)


def _number(name: str, about: str, *, at_least: int = 0, at_most: int) -> Parameter:
    def parse(written: str) -> int:
        if _DIGITS.fullmatch(written) is None or not at_least <= int(written) <= at_most:
            raise ValueError
        return int(written)

    schema = {"type": "integer", "minimum": at_least, "maximum": at_most}
    return Parameter(name=name, about=about, parse=parse, schema=schema)


_PAGE: Final = (
    _text("after", "go on where an answer ended: its `next`"),
    _number("limit", "how many at most", at_least=1, at_most=LIST_ENTRIES_MAX),
)
_OF_NAMESPACE: Final = _text("namespace", "those of one namespace")
_PARTITION: Final = _number("partition", "one partition alone", at_most=PARTITIONS_MAX - 1)
_SCAN_LIMITS: Final = (
    _number("limit", f"messages in the answer, {PAGE_MESSAGES} unless said", at_least=1, at_most=PAGE_MESSAGES_MAX),
    _number(
        "scan", f"messages looked at in this call, {SCAN_MESSAGES} unless said", at_least=1, at_most=SCAN_MESSAGES_MAX
    ),
    _number("previewBytes", f"of each payload, {PREVIEW_BYTES} unless said", at_most=PREVIEW_BYTES_MAX),
    _text("resume", "go on where an answer stopped"),
)
_RANGE_FILTERS: Final = (
    _PARTITION,
    _text("from", "earliest, latest, an offset, a time (2026-01-31T12:00:00Z) or the id of a message"),
    _number(
        "last", "in the place of from: so many before the end of each partition", at_least=1, at_most=SCAN_MESSAGES_MAX
    ),
    _text("until", "up to, not with, an offset, a time or the id of a message"),
)
_MESSAGE_FILTERS: Final = (
    _text("type", "a glob that the type matches"),
    _text("typeMatcher", "a regular expression (RE2) that is found in the type"),
    _text("key", "a glob that the key matches"),
    _text("keyBase64", "exactly this key"),
    _text("attribute", "NAME:VALUE, an attribute that it has"),
    _text("attributes", "several of them as a JSON object"),
    _text("contains", "a text that is in the payload"),
    _text("containsBase64", "bytes that are in the payload"),
)
_DEAD_LETTER_FILTERS: Final = (
    _text("type", "a glob that the type matches"),
    _text("reason", "a glob that the reason matches"),
    _text("subscription", "the subscription that it failed in"),
    _text("until", "no further than an answer's until says: what came after that is not meant"),
    _number(
        "redrivesMax", f"for the verdict: so often it is sent back, {REDRIVES_MAX} unless said",
        at_least=1, at_most=REDRIVES_CEILING,
    ),
)  # fmt: skip

# permissions

_SEE: Final = Permission(Operation.DESCRIBE, checked=False)
"""The permission of routes that list things. It is not checked before the handler runs: the broker leaves out the
entries that the client may not see."""
_DESCRIBE: Final = Permission(Operation.DESCRIBE, "topic")
_BROWSE: Final = Permission(Operation.BROWSE, "topic")
_MANAGE: Final = Permission(Operation.MANAGE, "topic")
_VIEW: Final = Permission(Operation.SERVER_VIEW)
_SERVER: Final = Permission(Operation.SERVER_MANAGE)


def _route(method: Method, path: str, handler: Any, about: str, permission: Permission, **more: Any) -> Route:
    options = {"body_bytes_max": _BODY_BYTES_MAX} | more
    return Route(method=method, path=f"/v1{path}", handler=handler, about=about, permission=permission, **options)


_NAMESPACES: Final = (
    _route(
        _GET, "/namespaces", topics.list_namespaces, "namespaces that have topics or defaults", _SEE,
        query=_PAGE, answer=answers.NamespacesAnswer,
    ),
    _route(
        _GET, "/namespaces/{namespace}", topics.get_namespace, "defaults of topics that are created in it",
        Permission(Operation.DESCRIBE, "namespace"), answer=answers.NamespaceFacts, errors=(404,),
    ),
    _route(
        _PUT, "/namespaces/{namespace}", topics.put_namespace, "let these be the defaults",
        Permission(Operation.ALTER, "namespace"), body=bodies.SettingsBody, answer=answers.NamespaceFacts,
        errors=(404, 422),
    ),
)  # fmt: skip

_TOPICS: Final = (
    _route(
        _GET, "/topics", topics.list_topics, "topics, in the order of their names", _SEE,
        query=(_OF_NAMESPACE, *_PAGE), answer=answers.TopicsAnswer,
    ),
    _route(
        _POST, "/topics", topics.create_topic, "create a topic", Permission(Operation.CREATE, checked=False),
        body=bodies.TopicBody, answer=answers.TopicEntry, status=201, errors=(422,),
    ),
    _route(
        _GET, "/topics/{topic}", topics.get_topic, "settings, partitions, sizes, rate, subscriptions", _DESCRIBE,
        answer=answers.TopicAnswer, errors=(404,),
    ),
    _route(
        _PATCH, "/topics/{topic}", topics.alter_topic, "change what is named; null is the default again",
        Permission(Operation.ALTER, "topic"), body=bodies.SettingsBody, answer=answers.TopicEntry, errors=(404, 422),
    ),
    _route(
        _DELETE, "/topics/{topic}", topics.delete_topic, "delete it; where something would be lost, in two steps",
        Permission(Operation.DELETE, "topic"), query=(_text("confirm", "as the first answer (409) says"),),
        answer=answers.StatusAnswer, errors=(404, 409),
    ),
)  # fmt: skip

_MESSAGES: Final = (
    _route(
        _GET, "/topics/{topic}/messages", messages.browse, "look through messages", _BROWSE,
        query=(*_RANGE_FILTERS, *_MESSAGE_FILTERS, *_SCAN_LIMITS), answer=answers.BrowseAnswer,
        errors=(404, 410, 422, 429),
    ),
    _route(
        _POST, "/topics/{topic}/messages", messages.publish, "publish a message; answered once it is durable",
        Permission(Operation.PUBLISH, "topic"), body=bodies.MessageBody, body_bytes_max=_MESSAGE_BODY_BYTES_MAX,
        answer=answers.StoredAnswer, status=201, errors=(404, 413, 422, 429),
    ),
    _route(
        _GET, "/topics/{topic}/messages/{message}", messages.get, "one message, with all of its payload if that fits",
        _BROWSE, query=(_PARTITION,), answer=answers.MessageAnswer, errors=(404, 410, 422),
    ),
    _route(
        _GET, "/topics/{topic}/messages/{message}/payload", messages.get_payload, "its payload, as it was published",
        _BROWSE, query=(_PARTITION,), media=messages.BYTES, errors=(404, 410, 422),
    ),
)  # fmt: skip

_SUBSCRIPTION: Final = "/topics/{topic}/subscriptions/{subscription}"
_SUBSCRIPTIONS: Final = (
    _route(
        _GET, "/subscriptions", subscriptions.list_all, "durable subscriptions of all topics", _SEE,
        query=_PAGE, answer=answers.SubscriptionsAnswer,
    ),
    _route(
        _GET, "/pipelines", subscriptions.list_pipelines, "who reads the log's files, and how far they are", _SEE,
        query=_PAGE, answer=answers.PipelinesAnswer,
    ),
    _route(
        _GET, "/topics/{topic}/subscriptions", subscriptions.list_of_topic, "those of one topic", _DESCRIBE,
        query=_PAGE, answer=answers.SubscriptionsAnswer, errors=(404,),
    ),
    _route(
        _POST, "/topics/{topic}/subscriptions", subscriptions.create, "create one, that nobody consumes yet",
        Permission(Operation.CONSUME, "topic"), body=bodies.SubscriptionBody, answer=answers.SubscribedAnswer,
        errors=(404, 422),
    ),
    _route(
        _GET, _SUBSCRIPTION, subscriptions.get, "lag, consumers, partitions, options, and why it does not move",
        _DESCRIBE, answer=answers.SubscriptionAnswer, errors=(404,),
    ),
    _route(
        _DELETE, _SUBSCRIPTION, subscriptions.delete, "delete it, and where it was", _MANAGE,
        answer=answers.StatusAnswer, errors=(404,),
    ),
    _route(
        _POST, f"{_SUBSCRIPTION}/seek", subscriptions.seek, "go on from another place", _MANAGE,
        body=bodies.SeekBody, answer=answers.SoughtAnswer, errors=(404, 410, 422),
    ),
    _route(
        _POST, f"{_SUBSCRIPTION}/pause", subscriptions.pause, "deliver nothing, to any consumer", _MANAGE,
        answer=answers.StatusAnswer, errors=(404,),
    ),
    _route(
        _POST, f"{_SUBSCRIPTION}/resume", subscriptions.resume, "deliver again, also what blocked it", _MANAGE,
        answer=answers.StatusAnswer, errors=(404,),
    ),
    _route(
        _POST, f"{_SUBSCRIPTION}/skip", subscriptions.skip, "settle messages that nobody acknowledged", _MANAGE,
        body=bodies.SkipBody, answer=answers.StatusAnswer, errors=(404, 410, 422),
    ),
)  # fmt: skip

_DEAD_LETTERS: Final = (
    _route(
        _GET, "/dead-letters", dead_letters.list_all, "topics that have dead letters", _SEE,
        query=(_OF_NAMESPACE, *_PAGE), answer=answers.LettersListAnswer,
    ),
    _route(
        _GET, "/topics/{topic}/dead-letters", dead_letters.browse, "the dead letters that are left", _BROWSE,
        query=(_PARTITION, *_DEAD_LETTER_FILTERS, *_SCAN_LIMITS), answer=answers.LettersAnswer, errors=(404, 422, 429),
    ),
    _route(
        _POST, "/topics/{topic}/dead-letters/redrive", dead_letters.redrive,
        "send them back to the topic, each once, however often this is asked", _MANAGE,
        body=bodies.RedriveBody, answer=answers.RedrivenAnswer, errors=(404, 422, 429),
    ),
    _route(
        _POST, "/topics/{topic}/dead-letters/drop", dead_letters.drop, "settle them without sending them back", _MANAGE,
        body=bodies.LettersBody, answer=answers.DroppedAnswer, errors=(404, 422, 429),
    ),
)  # fmt: skip

_ACCESS: Final = (
    _route(_GET, "/services", access.list_services, "services, by their names", _VIEW, answer=answers.ServicesAnswer),
    _route(
        _GET, "/connections", access.list_connections, "connections, in the order of their ids", _VIEW,
        query=_PAGE, answer=answers.ConnectionsAnswer,
    ),
    _route(
        _GET, "/connections/{connection}/subscriptions", access.list_live_subscriptions,
        "what a connection listens to", _VIEW, answer=answers.LiveSubscriptionsAnswer, errors=(404, 422),
    ),
    _route(
        _DELETE, "/connections/{connection}", access.close_connection, "end a connection, saying why", _SERVER,
        query=(_text("reason", "what it is told"),), answer=answers.StatusAnswer, errors=(404,),
    ),
    _route(_GET, "/keys", access.list_keys, "keys, without what is secret of them", _SERVER, answer=answers.KeysAnswer),
    _route(
        _POST, "/keys", access.create_key, "a new key, which is shown this once", _SERVER,
        body=bodies.KeyBody, answer=answers.NewKeyAnswer, status=201, errors=(422,),
    ),
    _route(
        _DELETE, "/keys/{key}", access.revoke_key, "no longer let anybody in with it", _SERVER,
        answer=answers.RevokedAnswer, errors=(422,),
    ),
    _route(
        _GET, "/access", access.list_bindings, "who may what", _SERVER,
        query=(_text("principal", "of one alone"),), answer=answers.BindingsAnswer, errors=(422,),
    ),
    _route(
        _POST, "/access/grant", access.grant, "let somebody do something", _SERVER,
        body=bodies.BindingBody, answer=answers.StandingAnswer, errors=(422,),
    ),
    _route(
        _POST, "/access/revoke", access.withdraw, "no longer let them", _SERVER,
        body=bodies.BindingBody, answer=answers.StandingAnswer, errors=(422,),
    ),
)  # fmt: skip

ROUTES: Final = (*_NAMESPACES, *_TOPICS, *_MESSAGES, *_SUBSCRIPTIONS, *_DEAD_LETTERS, *_ACCESS)
