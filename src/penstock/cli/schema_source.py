"""Schemas on the command line: a file, the schema's language, and its references."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer

from penstock.core.errors import InvalidRequest, PayloadTooLarge, PenstockError
from penstock.core.schemas import SCHEMA_BYTES_MAX, SchemaKind

_NO_SCHEMA: Final = 42201
"""The registry's error code for a text that is not a valid schema."""
NONE: Final = "none"
_STANDARD_INPUT: Final = Path("-")
_TEXTLESS: Final = (SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.BYTES)
_ENDINGS: Final = {".avsc": SchemaKind.AVRO, ".proto": SchemaKind.PROTOBUF}
_PROTOBUF: Final = re.compile(r"^\s*(?:syntax|edition)\s*=|^\s*(?:message|enum|package)\s+[A-Za-z_]", re.MULTILINE)
_AVRO_TYPES: Final = frozenset(
    ["record", "error", "enum", "fixed", "map", "int", "long", "float", "double", "bytes"],
)
"""Values of `type` that only Avro has. `array`, `string`, `boolean` and `null` also exist in JSON Schema."""
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)

File = Annotated[
    Path | None, typer.Argument(help="The schema; '-': standard input. Not needed for string, number, bytes.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaInput:
    """The options for the language of a schema, and for its references."""

    type: Annotated[
        str | None,
        typer.Option(help="avro, json, protobuf, string, number or bytes. Default: as the file looks.", metavar="TYPE"),
    ] = None
    reference: Annotated[
        list[str] | None,
        typer.Option(help="A registered schema that it uses, and as what. May be repeated.", metavar="NAME=SUBJECT:N"),
    ] = None

    def read(self, file: Path | None) -> dict[str, Any]:
        """Read the schema from a file, and return the fields of a request to the registry.

        `file` may be None only for a `--type` whose schemas have no text, such as number. Raises `InvalidRequest`, also
        if the language cannot be guessed, and `PayloadTooLarge`.
        """
        kind = None if self.type is None else _kind(self.type)
        text = _text(file, kind)
        fields = {"type": (kind or guess_kind(text, file)).value, "schema": text}
        references = [parse_reference(reference) for reference in self.reference or ()]
        return fields | ({"references": references} if references else {})


def _kind(name: str) -> SchemaKind:
    try:
        return SchemaKind(name.upper())
    except ValueError:
        kinds = ", ".join(kind.lower() for kind in SchemaKind)
        raise InvalidRequest(f"--type {name!r}: choose from {kinds}", given=name) from None


def _text(file: Path | None, kind: SchemaKind | None) -> str:
    if file is None and kind in _TEXTLESS:
        return ""
    if file is None:
        raise InvalidRequest("name a file with the schema, or '-' for standard input")
    with open_input(file) as source:
        data = source.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise PayloadTooLarge(f"{_input_name(file)} is too large: a schema has at most {SCHEMA_BYTES_MAX:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{_input_name(file)} is no text in UTF-8: byte {error.start} of it is not") from None


def open_input(file: Path) -> BinaryIO:
    """Open a file, or for `-` standard input. Closing the result closes standard input too, which nothing else
    reads."""
    if file == _STANDARD_INPUT and sys.stdin is None:
        raise InvalidRequest("there is no standard input: name a file")
    if file == _STANDARD_INPUT:
        return sys.stdin.buffer
    if not file.exists():
        raise InvalidRequest(f"{file} cannot be read: there is no such file")
    if file.is_dir():
        raise InvalidRequest(f"{file} cannot be read: it is a directory")
    return file.open("rb")


@contextmanager
def naming_file(file: Path | None) -> Iterator[None]:
    """Put the file's name in front of the registry's errors about the schema in that file."""
    try:
        yield
    except PenstockError as error:
        if file is None or error.details.get("registry_code") != _NO_SCHEMA:
            raise
        named = type(error)(f"{_input_name(file)}: {error.message}")
        named.details = error.details
        raise named from None


def _input_name(file: Path) -> str:
    return "standard input" if file == _STANDARD_INPUT else str(file)


# guessing the language


def guess_kind(text: str, file: Path | None) -> SchemaKind:
    """Guess a schema's language from the file's suffix, or from the text. Raises `InvalidRequest` if neither shows
    it."""
    known = _ENDINGS.get(file.suffix.lower()) if file is not None else None
    kind = known or _kind_of(text)
    if kind is None:
        where = "standard input" if file is None else _input_name(file)
        raise InvalidRequest(f"{where} does not look like a schema: say what it is with --type avro, json or protobuf")
    return kind


def _kind_of(text: str) -> SchemaKind | None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return SchemaKind.PROTOBUF if _PROTOBUF.search(text) else None
    match schema:
        case bool():
            return SchemaKind.JSON
        case list() | str():
            return SchemaKind.AVRO  # a union, or the name of a type
        case dict():
            return SchemaKind.AVRO if _is_avro(schema) else SchemaKind.JSON
        case _:
            return None


def _is_avro(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if kind == "array":
        return _are_type_names(schema.get("items"))
    return isinstance(kind, dict) or "logicalType" in schema or (isinstance(kind, str) and kind in _AVRO_TYPES)


def _are_type_names(items: object) -> bool:
    """Return True if `items` is a type name or a list of them, as in Avro. In JSON Schema, `items` is a schema."""
    return isinstance(items, str) or (isinstance(items, list) and any(isinstance(each, str) for each in items))


# references and versions


def parse_reference(text: str) -> dict[str, Any]:
    """Parse a reference of the form `NAME=SUBJECT:VERSION`. The name may be a URL that contains `=` and `:`. Raises
    `InvalidRequest`."""
    target, _, version = text.rpartition(":")
    name, _, subject = target.rpartition("=")
    if not name or not subject or not _NUMBER.fullmatch(version):
        raise InvalidRequest(
            f"--reference {text!r}: expected NAME=SUBJECT:VERSION, such as com.shop.Money=money-value:1", given=text
        )
    return {"name": name, "subject": subject, "version": int(version)}


def parse_version(option: str, text: str) -> int | str:
    """Parse a version: a number, or `latest`. Raises `InvalidRequest`, which names `option`."""
    if text != "latest" and not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{option}: {text!r} is no version: a number from 1 on, or latest", given=text)
    return text if text == "latest" else int(text)


def none_or_all(option: str, names: list[str]) -> list[str] | None:
    """Return the values of a repeated option; None if the only value is `none`. Raises `InvalidRequest` if `none` is
    given together with others."""
    if names == [NONE]:
        return None
    if NONE in names:
        raise InvalidRequest(f"{option} {NONE} means none at all: give it alone", given=names)
    return names
