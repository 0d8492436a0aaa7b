"""Handlers of messages: browse them, get one, get its payload as bytes, publish one."""

from __future__ import annotations

import re
from base64 import b64decode
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import UNSET
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.server.api.broker_calls import ask, ask_until_disconnect, sent_fields
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest

BYTES: Final = "application/octet-stream"
_OFFSET: Final = re.compile("[0-9]{1,19}")
_RENAMED: Final = {
    "typeMatcher": "type_regex",
    "keyBase64": "key_base64",
    "containsBase64": "contains_base64",
    "previewBytes": "preview_bytes",
}
"""The fields of the wire protocol whose query parameters have another name, by the name of the parameter."""


async def browse(request: ApiRequest) -> object:
    fields = {_RENAMED.get(name, name): value for name, value in sent_fields(request.query).items()}
    attributes = _attributes(fields.pop("attribute", None), fields.pop("attributes", None))
    fields |= {"attributes": attributes} if attributes else {}
    return await ask_until_disconnect(request, "system.message.browse", _topic(request) | fields)


def _attributes(one: str | None, several: str | None) -> dict[str, Any]:
    """Return the attributes to filter by. `one` is a single attribute, written NAME:VALUE; `several` is a JSON
    object."""
    attributes: dict[str, Any] = {}
    if several is not None:
        try:
            attributes = msgspec.json.decode(several, type=dict[str, str])
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise _invalid('attributes is a JSON object of texts: {"region": "eu"}', "attributes") from None
    if one is not None:
        name, colon, value = one.partition(":")
        if not colon or not name:
            raise _invalid("attribute is NAME:VALUE", "attribute")
        attributes[name] = value
    return attributes


def _invalid(sentence: str, field: str) -> HttpError:
    return HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, field=field)


async def get(request: ApiRequest) -> object:
    return await ask_until_disconnect(request, "system.message.get", _selected_message(request))


async def get_payload(request: ApiRequest) -> object:
    first = await ask_until_disconnect(request, "system.message.get", _selected_message(request) | {"payload_from": 0})
    return PayloadResponse(request, first)


def _selected_message(request: ApiRequest) -> dict[str, Any]:
    """Return the fields that select one message: the topic, and the offset if the last part of the path is written in
    digits, otherwise the id; and the partition, if the query has one."""
    written = request.path_params["message"]
    message = {"offset": int(written)} if _OFFSET.fullmatch(written) else {"id": written}
    return _topic(request) | message | sent_fields(request.query)


class PayloadResponse(Response):
    """A response with the payload of a message of any size. It is sent in pieces, no faster than the client reads
    them."""

    def __init__(self, request: ApiRequest, first: dict[str, Any]) -> None:
        size = first["payload_bytes"]
        # A published payload must not become a page of this site: a browser saves it and does not show it.
        headers = {
            "content-length": str(size),
            "content-disposition": "attachment",
            "x-content-type-options": "nosniff",
        }
        super().__init__(None, HTTPStatus.OK, headers, media_type=BYTES)
        self.raw_headers = [pair for pair in self.raw_headers if size == 0 or pair != (b"content-length", b"0")]
        self._request = request
        self._piece = b64decode(first["payload_base64"])
        self._size = size
        self._asked = _topic(request) | {"partition": first["partition"], "offset": first["offset"]}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            await self._send_pieces(send)
        await send({"type": "http.response.body", "body": b""})

    async def _send_pieces(self, send: Send) -> None:
        piece, sent = self._piece, 0
        while piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += len(piece)
            if sent >= self._size:
                return
            answer = await ask(self._request, "system.message.get", self._asked | {"payload_from": sent})
            piece = b64decode(answer["payload_base64"])


async def publish(request: ApiRequest) -> object:
    body = request.body
    fields = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    if "payload_json" in fields:  # as it was written, to the byte
        fields["payload"] = _json_payload(fields).decode()
    return await ask(request, "system.message.publish", _topic(request) | fields)


def _json_payload(fields: dict[str, Any]) -> bytes:
    if "payload" in fields:
        raise _invalid("Give one of payload, payload_base64, payload_json", "payload")
    return bytes(fields.pop("payload_json"))


def _topic(request: ApiRequest) -> dict[str, Any]:
    return {"topic": request.path_params["topic"]}
