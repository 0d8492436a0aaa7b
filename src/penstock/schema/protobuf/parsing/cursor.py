"""The parser's cursor: its position in a text, and the file descriptor that it fills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from google.protobuf import descriptor_pb2

from penstock.schema.errors import InvalidSchema
from penstock.schema.protobuf import literals
from penstock.schema.protobuf.limits import FULL_NAME_CHARS_MAX, INT32_MAX, MESSAGE_DEPTH_MAX, TYPES_MAX
from penstock.schema.protobuf.parsing.tokens import Token, TokenKind, refusal, tokens


class Dialect(Enum):
    PROTO2 = "proto2"
    PROTO3 = "proto3"
    EDITIONS = "editions"


class Cursor:
    """A cursor that looks ahead by one token. Methods that take a token raise `InvalidSchema`, with line and column, if
    another one is next; `what` is the word for the expected one in the message."""

    def __init__(self, text: str, name: str, tokens_max: int) -> None:
        self.text = text
        self.file: Any = descriptor_pb2.FileDescriptorProto(name=name)
        self.dialect = Dialect.PROTO2
        self.positions: dict[str, int] = {}
        """Offsets in the text of all named elements, by full name; some keys begin with a keyword, such as `import`."""
        self.tokens_read = 0
        self._types = 0
        self._depth = 0
        self._tokens = tokens(text, tokens_max, name)
        self.token = next(self._tokens)

    # Look-ahead

    def at(self, text: str) -> bool:
        return self.token.text == text

    def at_kind(self, kind: TokenKind) -> bool:
        return self.token.kind is kind

    def refuse(self, message: str, at: int | None = None) -> InvalidSchema:
        return refusal(message, self.text, self.token.at if at is None else at, self.file.name)

    def expected(self, what: str) -> InvalidSchema:
        token = "the end of the text" if self.at_kind(TokenKind.END) else _shortened(self.token.text)
        return self.refuse(f"expected {what}, not {token}")

    # Consumption

    def next(self) -> Token:
        taken = self.token
        if taken.kind is not TokenKind.END:
            self.token = next(self._tokens)
            self.tokens_read += 1
        return taken

    def take(self, text: str) -> bool:
        """Take the next token if its text is `text`; return whether it was."""
        if self.token.text != text or self.token.kind is TokenKind.END:
            return False
        self.next()
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.expected(f"'{text}'")

    def name(self, what: str) -> str:
        if not self.at_kind(TokenKind.NAME):
            raise self.expected(what)
        return self.next().text

    def integer(self, what: str, maximum: int = INT32_MAX) -> int:
        if not self.at_kind(TokenKind.INTEGER):
            raise self.expected(what)
        value = literals.integer(self.token.text)
        if value > maximum:
            raise self.refuse(f"{what} is at most {maximum}")
        self.next()
        return value

    def signed(self, what: str) -> int:
        """Take a signed integer of 32 bits and return it."""
        if self.take("-"):
            return -self.integer(what, INT32_MAX + 1)
        return self.integer(what)

    def string(self, what: str) -> bytes:
        """Take a string; several strings in a row count as one."""
        if not self.at_kind(TokenKind.STRING):
            raise self.expected(what)
        pieces = []
        while self.at_kind(TokenKind.STRING):
            try:
                pieces.append(literals.unquoted(self.token.text))
            except ValueError as error:
                raise self.refuse(str(error)) from None
            self.next()
        return b"".join(pieces)

    def words(self, what: str) -> str:
        """Take a string and return it as text. Raises `InvalidSchema` if it is not UTF-8."""
        at = self.token.at
        try:
            return self.string(what).decode()
        except UnicodeDecodeError:
            raise self.refuse(f"{what} is not text in UTF-8", at) from None

    def qualified(self, what: str) -> str:
        """Take a name such as `a.b.C`, with or without a leading dot, and return it."""
        begin = "." if self.take(".") else ""
        return begin + self.dotted(what)

    def dotted(self, what: str) -> str:
        names = [self.name(what)]
        while self.take("."):
            names.append(self.name(what))
        return ".".join(names)

    # Declarations

    def declare(self, scope: str, name: str, at: int) -> str:
        """Return the full name of an element and record its position. Raises `InvalidSchema` if its scope already has
        the name or the full name is too long."""
        full = f"{scope}.{name}" if scope else name
        if len(full) > FULL_NAME_CHARS_MAX:
            raise self.refuse(f"a name has at most {FULL_NAME_CHARS_MAX} characters, with all that it is within", at)
        if full in self.positions:
            raise self.refuse(f'"{name}" is already defined in {scope or "this file"}', at)
        self.positions[full] = at
        return full

    def count_type(self) -> None:
        self._types += 1
        if self._types > TYPES_MAX:
            raise self.refuse(f"more than {TYPES_MAX} messages and enums are too many for one file")

    @contextmanager
    def within(self) -> Iterator[None]:
        """Count one more level of nested messages within the context. Raises `InvalidSchema` if there are too many."""
        self._depth += 1
        if self._depth > MESSAGE_DEPTH_MAX:
            raise self.refuse(f"messages are nested more than {MESSAGE_DEPTH_MAX} deep")
        yield
        self._depth -= 1


def _shortened(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:37]}...'"
