"""The string formats that payloads must conform to. All other formats are annotations.

The drafts leave it open whether `format` is enforced. Here it is, and the same in every draft, so that readers can make
a column or an object of such a string. Times may lack their zone, because many programs leave it out, and readers take
it for UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from jsonschema_rs import Draft202012Validator

from penstock.schema.times import check_time, days, microseconds

_DURATION: Final = re.compile(
    r"[+-]?P(?:\d+W|(?=[\dT])(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?)", re.ASCII
)


def _readable(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return check


def _built_in(name: str) -> Callable[[str], bool]:
    """Return the validator library's check of a format, in draft 2020-12; earlier drafts do not know all formats."""
    validator: Any = Draft202012Validator({"format": name}, validate_formats=True, offline=True)
    is_valid: Callable[[str], bool] = validator.is_valid
    return is_valid


CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "date-time": _readable(microseconds),
    "date": _readable(days),
    "time": _readable(check_time),
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    **{name: _built_in(name) for name in ("email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid")},
}

_DAY: Final = (
    r"(?!0000)[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HOST: Final = r"[a-z][a-z0-9]{0,62}(?:\.[a-z][a-z0-9]{0,62}){0,3}"

FAST_PATTERNS: Final = {
    name: rf"\A{pattern}\Z"
    for name, pattern in {
        "date-time": rf"{_DAY}T{_CLOCK}",
        "date": _DAY,
        "time": _CLOCK,
        "email": rf"[A-Za-z0-9]{{1,32}}(?:[._+-][A-Za-z0-9]{{1,15}}){{0,2}}@{_HOST}",
        "hostname": _HOST,
        "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
        "uri": rf"https?://{_HOST}(?:/[A-Za-z0-9_~.-]{{0,64}}){{0,8}}",
        "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    }.items()
}
"""Patterns of the usual spellings: matching texts conform, others go to the exact check. They take linear time, and no
character is visited twice."""
