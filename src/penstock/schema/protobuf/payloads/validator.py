"""The validator of payloads: a payload is one serialised message, of the first type that the schema declares.

Unknown fields do not make a payload invalid: newer writers have them, and Protobuf is made to skip them. A payload in
which no field at all is known is something else, and is refused.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from penstock.schema.language import PayloadFault
from penstock.schema.protobuf.payloads.diagnosis import diagnosis, knows_a_field


class MessageValidator:
    """The validator of one message type."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor
        self._class = message_factory.GetMessageClass(descriptor)

    def accepts_lines(self, lines: memoryview, count: int) -> bool:  # noqa: ARG002
        """Return False: any byte of a message may be a newline."""
        return False

    def fault(self, payload: bytes) -> PayloadFault | None:
        try:
            message = self._class.FromString(payload)
        except DecodeError:
            return diagnosis(self._descriptor, payload)
        if not message.IsInitialized():
            return _missing(message)
        if payload and not message.ListFields() and not knows_a_field(self._descriptor, payload):
            return PayloadFault("", f"none of its fields is one of {self._descriptor.full_name}")
        return None


class RejectingValidator:
    """The validator of a schema that declares no message: no payload conforms."""

    def accepts_lines(self, lines: memoryview, count: int) -> bool:  # noqa: ARG002
        return False

    def fault(self, payload: bytes) -> PayloadFault | None:  # noqa: ARG002
        return PayloadFault("", "the schema declares no message that it could be")


def _missing(message: Any) -> PayloadFault:
    first = message.FindInitializationErrors()[0]
    path = "/" + first.replace("[", ".").replace("]", "").replace(".", "/")
    return PayloadFault(path, f"the required field {first} is missing")
