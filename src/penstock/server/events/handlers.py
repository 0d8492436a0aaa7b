"""Handlers of event requests: publish messages, and stream topics."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from penstock.broker.access.policy import ANONYMOUS, Operation, Resource
from penstock.broker.reads.feed import FeedRequest
from penstock.broker.topics.publish_batch import StoredAt
from penstock.core.errors import InvalidRequest, PayloadTooLarge
from penstock.core.limits import KIB, QUOTED_CHARS_MAX
from penstock.core.names import TopicName, TopicPattern
from penstock.core.positions import AtId, Position, parse_position
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest
from penstock.server.api.routing import quoted
from penstock.server.events import publish_formats
from penstock.server.events.outgoing_cloudevents import STRUCTURED
from penstock.server.events.publish_formats import PublishDefaults, PublishRequest, RequestHeaders
from penstock.server.events.state import EventService
from penstock.server.events.stream import HEARTBEAT_SECONDS, EventStream, StreamRequest
from penstock.server.events.stream_formats import NDJSON, SSE, StreamFormat, spelled_id

DEFAULT_TOPIC: Final = "events"
"""The topic for messages whose request does not name one."""
_INLINE_PARSE_BYTES_MAX: Final = 64 * KIB
"""The largest body that is parsed in the event loop, which takes a few milliseconds. Larger ones are parsed in a
thread."""
_FORMS: Final = {
    SSE: StreamFormat.EVENTS,
    "text/*": StreamFormat.EVENTS,
    "*/*": StreamFormat.EVENTS,
    "*": StreamFormat.EVENTS,
    NDJSON: StreamFormat.LINES,
    "application/ndjson": StreamFormat.LINES,
    "application/jsonl": StreamFormat.LINES,
    "application/json": StreamFormat.LINES,
    "application/*": StreamFormat.LINES,
    STRUCTURED: StreamFormat.CLOUDEVENTS,
}
Id = Annotated[str, Meta(description="UUIDv6: the place of the message in everything that is stored here")]


class Stored(Struct, frozen=True, omit_defaults=True):
    """The durable position of a message."""

    id: Id | None
    offset: int
    topic: str
    partition: int
    duplicate: Annotated[bool, Meta(description="it was stored before, and this is where")] = False


class StoredPlace(Struct, frozen=True, omit_defaults=True):
    id: Id | None
    offset: int
    partition: int
    duplicate: bool = False


class StoredBatch(Struct, frozen=True):
    """The durable position of each message, in the order in which they were sent."""

    topic: str
    count: int
    events: list[StoredPlace]


# POST


async def post_events(request: ApiRequest) -> Stored | StoredBatch:
    events = request.service(EventService)
    topic = TopicName.parse(request.query["topic"])
    _check_create(request, events, topic)
    headers = publish_formats.request_headers(request.scope["headers"])
    key = request.query["key"]
    defaults = PublishDefaults(
        type=request.query["type"],
        key=None if key is None else key.encode(),
        payload_lines=request.query["lines"] == "payload",
    )
    _check_size(events, headers, len(request.body))
    posted = await parse_body(headers, request.body, defaults)
    numbered = publish_formats.numbered(headers, len(posted.messages), request.principal.name)
    places = await events.post(topic, posted, numbered)
    return _stored_message(topic, places[0]) if posted.single else _stored_batch(topic, places)


def _check_create(request: ApiRequest, events: EventService, topic: TopicName) -> None:
    """If publishing would create the topic, require the permission to create it, as TCP and WebSocket do. Raises
    `Unauthorized` or `Forbidden`."""
    if events.durable.would_create(topic):
        request.check(Operation.CREATE, Resource.topic(topic))


async def parse_body(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> PublishRequest:
    """Parse the body, in a thread if that takes long, so that other requests are answered meanwhile. Raises if any
    message is invalid."""
    if len(body) > _INLINE_PARSE_BYTES_MAX and publish_formats.is_parsed(headers):
        return await asyncio.to_thread(publish_formats.read, headers, body, defaults)
    return publish_formats.read(headers, body, defaults)


def _check_size(events: EventService, headers: RequestHeaders, size: int) -> None:
    """Raise `PayloadTooLarge` if the body is larger than a message, or a block of messages, may be. Called before it is
    parsed."""
    limits, several = events.hub.limits, publish_formats.is_several(headers)
    most = limits.block_bytes_max if several else limits.payload_bytes_max
    if size > most:
        what = "a POST of several messages" if several else "a message"
        raise PayloadTooLarge(f"{what} has at most {most} bytes, not {size}", limit=most)


def _stored_message(topic: TopicName, place: StoredAt) -> Stored:
    return Stored(_id(place), place.offset, str(topic), place.partition, place.duplicate)


def _stored_batch(topic: TopicName, places: list[StoredAt]) -> StoredBatch:
    found = [StoredPlace(_id(each), each.offset, each.partition, each.duplicate) for each in places]
    return StoredBatch(str(topic), len(found), found)


def _id(place: StoredAt) -> str | None:
    return None if place.id is None else spelled_id(place.id)


# GET


async def get_events(request: ApiRequest) -> EventStream:
    events, query = request.service(EventService), request.query
    feed = FeedRequest(topics=_topics(query["topic"]), partition=query["partition"], matcher=query["typeMatcher"])
    form = _form(request)
    client = _client_of(request)
    events.check_room(client)
    events.feeds.select(feed)  # raises for topics that cannot be read
    resume = request.headers["last-event-id"] or query["lastEventId"]
    start = await events.start(feed, _position(resume, query["from"]), resumed=bool(resume))
    stream_request = StreamRequest(
        feed=feed,
        form=form,
        start=start,
        until=None if query["follow"] else events.feeds.frontier,
        limit=query["limit"],
        heartbeat=_heartbeat(query["heartbeat"], form),
        principal=request.principal,
        client=client,
    )
    return EventStream(events, stream_request)


def _client_of(request: ApiRequest) -> str:
    """Return the name under which a client's streams are counted for their limit: that of its principal, or the address
    of an anonymous client."""
    if request.principal is not ANONYMOUS:
        return request.principal.name
    address, _, _ = request.origin.address.rpartition(":")
    return address


def _topics(text: str) -> TopicPattern:
    found = TopicPattern.parse(text)
    if found.is_system:
        raise InvalidRequest(f"{found} is the broker's own, and nothing in it is kept", field="topic")
    return found


def _form(request: ApiRequest) -> StreamFormat:
    accept = _accept(request)
    best = _best(accept)
    if best is None:
        raise HttpError(
            HTTPStatus.NOT_ACCEPTABLE, f"Accept: {quoted(accept)} takes none of {SSE}, {NDJSON}, {STRUCTURED}"
        )
    return StreamFormat.ENVELOPES if best is StreamFormat.EVENTS and request.query["envelope"] else best


def _accept(request: ApiRequest) -> str:
    return request.headers["accept"] or "*/*"


def _best(accept: str) -> StreamFormat | None:
    """Return the stream format with the highest weight in the Accept header; of several, the one that is named first.
    None if no format is accepted."""
    found: tuple[float, StreamFormat | None] = (0.0, None)
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        weight = next((_weight(part) for part in parameters if part.startswith("q=")), 1.0)
        if kind in _FORMS and weight > found[0]:
            found = weight, _FORMS[kind]
    return found[1]


def _weight(parameter: str) -> float:
    try:
        return min(max(float(parameter.removeprefix("q=")), 0.0), 1.0)
    except ValueError:
        return 1.0


def _position(resume: str | None, start: str) -> Position:
    """Return the position at which the stream starts: `resume`, the id in Last-Event-ID, or without one `start`, the
    parameter `from`. Raises `InvalidRequest`."""
    name = "Last-Event-ID" if resume else "from"
    text = resume or start
    try:
        if len(text) > QUOTED_CHARS_MAX:
            raise InvalidRequest("it is too long")
        found = parse_position(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}: {error.message}", field=name) from None
    if resume and not isinstance(found, AtId):
        raise InvalidRequest(f"Last-Event-ID is the id of an event, not {text!r}", field=name)
    return found


def _heartbeat(asked: int | None, form: StreamFormat) -> float | None:
    """Return the seconds between heartbeats; None for none. `asked` is the client's wish. By default lines of JSON have
    none, because the empty line of a heartbeat is not JSON."""
    default: Any = None if form.is_lines else HEARTBEAT_SECONDS
    return default if asked is None else float(asked)
