"""How one message is printed where its user says how: `%o %k %s`. Read once, before any message is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.cli.output import on_one_line, time_text
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.client.blocking import StreamMessage

Printer = Callable[["StreamMessage"], str]


def _text(data: bytes | None) -> str:
    """As text; bytes that are none stay recognisable."""
    return "" if data is None else data.decode(errors="backslashreplace")


def _attributes(message: StreamMessage) -> str:
    import json

    return json.dumps(dict(message.attributes), ensure_ascii=False)


def _schema(message: StreamMessage) -> str:
    return "" if message.schema is None else f"{message.schema.id}/{message.schema.version}"


DIRECTIVES: Final[dict[str, tuple[str, Printer]]] = {
    "o": ("offset", lambda message: str(message.offset)),
    "p": ("partition", lambda message: str(message.partition)),
    "t": ("type", lambda message: message.type),
    "T": ("publish time", lambda message: time_text(message.publish_time_ms)),
    "k": ("key", lambda message: _text(message.key)),
    "s": ("payload as text", lambda message: _text(message.payload)),
    "i": ("id", lambda message: message.id),
    "h": ("attributes as JSON", _attributes),
    "S": ("schema id and version, as 7/2", _schema),
    "n": ("producer name", lambda message: message.producer_name),
    "%": ("a percent sign", lambda _message: "%"),
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\"}
_PIECE: Final = re.compile(r"%(.?)|\\(.?)|([^%\\]+)", re.DOTALL)


def compile_template(text: str, *, terminal: bool) -> Printer:
    """One line a message, unless the template says otherwise. Raises `InvalidRequest` for what it does not know.

    On a terminal, what does not print is escaped: a message must not move the cursor.
    """
    pieces = [_piece(found, text) for found in _PIECE.finditer(text)]
    end = "" if text.endswith("\\n") else "\n"

    def printed(message: StreamMessage) -> str:
        parts = (each if isinstance(each, str) else _shown(each(message), terminal=terminal) for each in pieces)
        return "".join(parts) + end

    return printed


def _shown(text: str, *, terminal: bool) -> str:
    return on_one_line(text) if terminal else text


def _piece(found: re.Match[str], text: str) -> Printer | str:
    directive, escape, plain = found.groups()
    if plain is not None:
        return plain
    if escape is not None:
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        raise _unknown(text, f"\\{escape}", r"\n, \t, \\")
    if directive in DIRECTIVES:
        return DIRECTIVES[directive][1]
    raise _unknown(text, f"%{directive}", ", ".join(f"%{name} {meaning}" for name, (meaning, _) in DIRECTIVES.items()))


def _unknown(text: str, written: str, known: str) -> InvalidRequest:
    return InvalidRequest(f"--format {text!r}: {written} is not known; there are: {known}", given=text)
