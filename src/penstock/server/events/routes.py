"""The routes of events: publish, and stream."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.access.policy import Operation
from penstock.core.limits import MIB
from penstock.server.api.routing import RAW, Method, Parameter, Permission, Route, choice, flag, number, text
from penstock.server.events import handlers
from penstock.server.events.handlers import DEFAULT_TOPIC
from penstock.server.events.outgoing_cloudevents import STRUCTURED
from penstock.server.events.stream_formats import NDJSON, SSE

BODY_BYTES_MAX: Final = 16 * MIB
"""The largest body of a POST in bytes. It holds even if the broker's own limits allow more, because the body is held in
memory."""
PATH_PARAMETERS: Final[dict[str, Parameter]] = {}

_HEADER: Final[dict[str, Any]] = {"type": "string"}


def _header(name: str, about: str) -> Parameter:
    return Parameter(name=name, about=about, parse=str, schema=_HEADER)


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method=Method.POST,
        path="/api/events",
        handler=handlers.post_events,
        about="store the body as one message, or as several where Content-Type says so; durable when it is answered",
        permission=Permission(Operation.PUBLISH, of="topic", query=True),
        query=(
            text("type", "what happened: order.created"),
            text("topic", "where it goes; it is created if need be, where the broker may", DEFAULT_TOPIC),
            text("key", "messages with the same key keep their order", None),
            choice(
                "lines",
                "what a line of NDJSON is: a message with its fields, or a payload",
                ("message", "payload"),
                "message",
            ),
        ),
        headers=(
            _header("idempotency-key", "any text: what the same caller sends again with it is stored once"),
            _header("x-producer", "the name of a producer; with x-request-id, messages are stored once"),
            _header("x-request-id", "the producer's number of the (first) message"),
            _header("x-schema-id", "the schema the payload was written with"),
            _header("x-schema-version", "its version"),
            _header("x-key", "as key"),
            _header("x-type", "as type"),
            _header("traceparent", "kept as an attribute"),
        ),
        body=RAW,
        body_bytes_max=BODY_BYTES_MAX,
        answer=handlers.Stored | handlers.StoredBatch,
        errors=(404, 409),
    ),
    Route(
        method=Method.GET,
        path="/api/events",
        handler=handlers.get_events,
        about="everything that is stored, in order, as a stream of events; it goes on until somebody ends it",
        permission=Permission(Operation.CONSUME, of="topics", query=True),
        query=(
            text(
                "topic", "a name or a pattern: orders, orders.+, /shop/#; by default all of the default namespace", "#"
            ),
            number("partition", "of a topic: that one alone"),
            text("typeMatcher", "a regular expression (RE2) that is found in the type"),
            text("from", "where to begin: earliest, latest, an id, a time, or an offset in one partition", "latest"),
            text("lastEventId", "as the header Last-Event-ID, for who cannot set one"),
            number("limit", "so many events, then the stream ends", at_least=1),
            flag("follow", "whether to wait for more at the end of what there is", default=True),
            flag("envelope", "whether data is a line of JSON with all there is to know, not the payload alone"),
            number("heartbeat", "seconds between two signs of life", at_least=1),
        ),
        headers=(
            _header("accept", "text/event-stream, application/x-ndjson or application/cloudevents+json"),
            _header("last-event-id", "the last id that was read: the stream goes on behind it"),
        ),
        media=SSE,
        media_too=(NDJSON, STRUCTURED),
        errors=(404, 410),
    ),
)
