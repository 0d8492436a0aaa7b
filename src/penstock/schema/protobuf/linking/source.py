"""One file of a schema, before anything in it is resolved: from a .proto text, or from a serialised descriptor."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.schemas import SCHEMA_BYTES_MAX
from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf.linking.described import decoded
from penstock.schema.protobuf.names import local
from penstock.schema.protobuf.parsing.cursor import Cursor
from penstock.schema.protobuf.parsing.files import read
from penstock.schema.protobuf.parsing.tokens import brief, refusal

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]++={0,2}")


@dataclass(frozen=True, slots=True)
class Source:
    file: Any
    """A FileDescriptorProto."""
    text: str = ""
    """Empty for a descriptor that was never text here."""
    places: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    def refusal(self, message: str, *names: str) -> InvalidSchema:
        """The error for the first of these things whose place in the text is known: full names, or keys of `places`."""
        where = [local(name.removeprefix("."), self.file.package) for name in names]
        path = {"path": "/" + where[0].replace(".", "/")} if where and where[0].replace(".", "").isidentifier() else {}
        for name in (*where, *names):
            if name in self.places:
                return refusal(message, self.text, self.places[name], self.file.name, **path)
        within = f'"{self.file.name}": ' if self.file.name else ""
        told = {"file": self.file.name} if self.file.name else {}
        return InvalidSchema(brief(f"{within}{message}"), **told, **path)


def source(text: str, name: str, tokens_max: int) -> Source:
    """`text` may be a .proto text or the base64 of a FileDescriptorProto, which is how some clients register schemas.

    No .proto text could be taken for base64: there is a semicolon or a brace in each.
    """
    _check_size(text, name)
    stripped = text.strip()
    if _BASE64.fullmatch(stripped):
        return Source(decoded(stripped, name))
    cursor = Cursor(text, name, tokens_max)
    read(cursor)
    return Source(cursor.file, text, cursor.places, cursor.tokens_read)


def _check_size(text: str, name: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise refusal("a lone surrogate is not text", text, error.start, name) from None
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"a schema has at most {SCHEMA_BYTES_MAX} bytes, not {size}")
