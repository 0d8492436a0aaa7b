"""Numbers and strings, as .proto texts write them and as descriptors store them."""

from __future__ import annotations

import re
from typing import Final

_OVERLONG: Final = 2**64
"""The value of a decimal with too many digits: more than fits anywhere."""

_NOT_DECIMAL: Final = re.compile(r"0(?:[xX][0-9a-fA-F]++|[0-7]++)")
_ESCAPE: Final = re.compile(
    rb"""\\(?:
      (?P<simple>[abfnrtv\\?'"])
    | (?P<octal>[0-7]{1,3})
    | [xX](?P<hex>[0-9a-fA-F]{1,2})
    | u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})
    | u(?P<short>[0-9a-fA-F]{4})
    | U(?P<long>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})
    | (?P<wrong>.?)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE: Final = dict(zip(b"abfnrtv\\?'\"", b"\a\b\f\n\r\t\v\\?'\"", strict=True))
_QUOTED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ESCAPED: Final = _QUOTED | {"'": "\\'"}


def integer(text: str) -> int:
    """Return the value of an INTEGER token: decimal, octal after `0`, hexadecimal after `0x`."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text.startswith("0"):
        return int(text, 8)
    return int(text) if len(text) <= 20 else _OVERLONG


def real(text: str) -> float:
    """Return the value of an INTEGER or FLOAT token; infinite past the largest."""
    if _NOT_DECIMAL.fullmatch(text):
        return float(min(integer(text), _OVERLONG))
    return float(text)


def unquoted(text: str) -> bytes:
    """Return the bytes of a STRING token. Raises `ValueError` at an invalid escape."""
    body = text[1:-1].encode()
    return _ESCAPE.sub(_unescaped, body) if b"\\" in body else body


def _unescaped(match: re.Match[bytes]) -> bytes:
    group = str(match.lastgroup)
    value = match[group]
    match group:
        case "simple":
            return bytes([_SIMPLE[value[0]]])
        case "octal":
            return bytes([int(value, 8) & 0xFF])
        case "hex":
            return bytes([int(value, 16)])
        case "low":
            return chr(0x10000 + ((int(match["high"], 16) & 0x3FF) << 10) + (int(value, 16) & 0x3FF)).encode()
        case "short" | "long":
            return chr(int(value, 16)).encode("utf-8", "surrogatepass")
        case _:
            shown = match[0].decode("utf-8", "backslashreplace")
            raise ValueError(f"{shown} is not an escape sequence")


def escaped(value: bytes) -> str:
    """Return the default of a bytes field as descriptors store it: nothing but printable ASCII."""
    return "".join(_ESCAPED.get(chr(byte)) or _visible(chr(byte), byte < 127) for byte in value)


def quoted(value: str) -> str:
    """Return text between double quotes; letters of other scripts stay as they are."""
    return '"' + "".join(_QUOTED.get(letter) or _visible(letter, letter != "\x7f") for letter in value) + '"'


def _visible(character: str, printable: bool) -> str:
    return character if printable and character >= " " else f"\\{ord(character):03o}"


def shortest(value: float) -> str:
    """Return the default of a float or double field as descriptors store it: 15 digits if they suffice, else 17."""
    if value != value:
        return "nan"
    short = f"{value:.15g}"
    return short if float(short) == value else f"{value:.17g}"
