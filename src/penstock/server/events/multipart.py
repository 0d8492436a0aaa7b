"""Multipart bodies, `multipart/mixed` and `multipart/form-data`: splits bytes into the headers and the bytes of each
part.

The parser is strict. Bytes between the parts that belong to no part are refused, and so is a body that ends too early,
with the number of the part in which it ends. The contents of parts are not decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message as Mime
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.core.limits import KIB

HEAD_BYTES_MAX: Final = 16 * KIB
"""The most bytes of the headers of one part."""
BOUNDARY_CHARS_MAX: Final = 70
"""The most characters of a boundary, as RFC 2046 has it."""
_PARAMETERS_CHARS_MAX: Final = 1 * KIB
"""The longest header, in characters, whose parameters are read: the time for parsing grows with the square of the
length."""
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]*[0-9A-Za-z'()+_,./:=?-]", re.ASCII)
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")

Headers = list[tuple[bytes, bytes]]
"""The headers of a part: pairs of name and value, with names in lower case."""


class BodyPart(NamedTuple):
    headers: Headers
    body: bytes


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that Content-Type names. Raises `InvalidRequest` if it is missing or invalid."""
    found = parameter(content_type, "boundary")
    if not found or len(found) > BOUNDARY_CHARS_MAX or not _BOUNDARY.fullmatch(found):
        raise InvalidRequest(
            f"Content-Type: multipart has a boundary of 1 to {BOUNDARY_CHARS_MAX} characters", field="Content-Type"
        )
    return found.encode()


def parameter(header: str, name: str) -> str | None:
    """Return a parameter of a header such as Content-Type or Content-Disposition; None if it has no such parameter."""
    if len(header) > _PARAMETERS_CHARS_MAX:
        return None
    mime = Mime()
    mime["content-type"] = header
    found = mime.get_param(name)
    return found if isinstance(found, str) else None


def parts(body: bytes, boundary: bytes) -> Iterator[BodyPart]:
    """Yield the parts of a body. Raises `MalformedMessage` if it has no parts, or if one is wrong: then with the number
    of that part, counted from 1."""
    mark = b"--" + boundary
    place = _opening(body, mark)
    number = 0
    while not body.startswith(b"--", place):
        number += 1
        place = _line_end(body, place, number)
        end = body.find(b"\r\n" + mark, max(place - 2, 0))
        if end < 0:
            raise _wrong(number, "the body ends within it: there is no closing boundary")
        yield _part(body[place:end] if end >= place else b"", number)
        place = end + 2 + len(mark)
    if not number:
        raise MalformedMessage("the body has no parts", field="body")


def _opening(body: bytes, mark: bytes) -> int:
    """Return the position behind the first boundary (`mark`). Text before it is a comment, and is ignored."""
    if body.startswith(mark):
        return len(mark)
    found = body.find(b"\r\n" + mark)
    if found < 0:
        raise MalformedMessage("the boundary that Content-Type names is not in the body", field="body")
    return found + 2 + len(mark)


def _line_end(body: bytes, place: int, number: int) -> int:
    end = body.find(b"\r\n", place)
    if end < 0 or body[place:end].strip(b" \t"):
        raise _wrong(number, "its boundary is not alone on its line")
    return end + 2


def _part(raw: bytes, number: int) -> BodyPart:
    if raw.startswith(b"\r\n"):
        return BodyPart([], raw[2:])
    head, blank, content = raw.partition(b"\r\n\r\n")
    if not blank:
        raise _wrong(number, "there is no empty line behind its headers")
    if len(head) > HEAD_BYTES_MAX:
        raise _wrong(number, f"its headers have more than {HEAD_BYTES_MAX} bytes")
    headers = []
    for line in head.split(b"\r\n"):
        found = _HEADER.fullmatch(line)
        if found is None:
            raise _wrong(number, "a line of its headers is not NAME: VALUE")
        headers.append((found[1].lower(), found[2]))
    return BodyPart(headers, content)


def _wrong(number: int, why: str) -> MalformedMessage:
    return MalformedMessage(f"part {number}: {why}", part=number)
