"""The validator: exact answers for one payload, and a fast yes for many."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import msgspec
from jsonschema_rs import ValidationError, ValidationErrorKind
from jsonschema_rs import Validator as Exact

from penstock.schema.jsonschema.model import text
from penstock.schema.jsonschema.validation.fast_accept import FastAccept
from penstock.schema.jsonschema.validation.payload import (
    SURELY_SHALLOW_BYTES,
    InvalidPayload,
    is_shallow,
    parse_payload,
)
from penstock.schema.language import PayloadFault
from penstock.schema.problems import fragment

# The decoder of lines counts values: it would accept two on one line, or one on two. Where lines begin and end with
# braces it cannot, because in JSON no value continues with `{` behind `}`: as many values as lines are one on each.
_OBJECTS: Final = re.compile(rb"(?:\{.*\}\n)*+")
_SHORT_OBJECTS: Final = re.compile(rb"(?:\{.{0,%d}\}\n)*+" % (SURELY_SHALLOW_BYTES - 2))

_CAUSES_FOLLOWED: Final = 8
"""Limit of how often the error of a choice is replaced by the error of one of its branches."""


class PayloadValidator:
    """The validator of one schema."""

    def __init__(self, exact: Exact, fast_accept: FastAccept | None) -> None:
        self._exact = exact
        self._fast_accept = fast_accept

    def accepts_lines(self, lines: memoryview, count: int) -> bool:
        if self._fast_accept is None:
            return False
        try:
            str(lines, "utf-8")  # the decoder does not check the parts that it skips
            return _decodes(self._fast_accept, lines, count)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False

    def fault(self, payload: bytes) -> PayloadFault | None:
        try:
            value = parse_payload(payload)
        except InvalidPayload as error:
            return error.fault
        if self._exact.is_valid(value):
            return None
        try:
            self._exact.validate(value)
        except ValidationError as error:
            return _fault(error)
        return PayloadFault("", "it does not conform")


def _decodes(fast_accept: FastAccept, lines: memoryview, count: int) -> bool:
    """Return whether `lines` are `count` payloads that all decode. If each line is plainly one object, they are decoded
    at once, else one by one. Raises the decoder's errors."""
    if (_SHORT_OBJECTS if fast_accept.skips else _OBJECTS).fullmatch(lines):
        return len(fast_accept.decoder.decode_lines(lines)) == count
    payloads = bytes(lines).split(b"\n")
    if payloads.pop() or len(payloads) != count or (fast_accept.skips and not all(map(is_shallow, payloads))):
        return False
    deque(map(fast_accept.decoder.decode, payloads), maxlen=0)
    return True


def _fault(error: ValidationError) -> PayloadFault:
    for _ in range(_CAUSES_FOLLOWED):
        error = _cause(error)
    return PayloadFault(fragment(text.pointer(error.instance_path)), fragment(error.message))


def _cause(error: ValidationError) -> ValidationError:
    """Return the error of the branch that came farthest into the value, if `error` says that no branch of a choice
    fits; else `error` itself."""
    kind = error.kind
    if not isinstance(kind, (ValidationErrorKind.AnyOf, ValidationErrorKind.OneOfNotValid)):
        return error
    first = [errors[0] for errors in kind.context if errors]
    farthest = max(first, key=lambda branch_error: len(branch_error.instance_path), default=error)
    return farthest if len(farthest.instance_path) > len(error.instance_path) else error
