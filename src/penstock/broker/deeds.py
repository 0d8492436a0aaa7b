"""What exactly somebody asked for, for the audit log: which message or request it was, and what it named.

Only names come in, and only those of the table: never a payload, and never a secret, wherever somebody wrote one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.broker.access import UNSAID, Deed, Operation
from penstock.broker.access_grants import SCOPE_CHARS_MAX
from penstock.broker.access_keys import PREFIX

NAMES: Final[dict[Operation, tuple[str, ...]]] = {
    Operation.SERVER_MANAGE: (
        "name",
        "key",
        "principal",
        "binding",
        "bindings",
        "expires_ms",
        "connection",
        "id",
    ),
    Operation.MANAGE: ("subscription",),
    Operation.SCHEMA_WRITE: ("version",),
    Operation.SCHEMA_DELETE: ("version", "permanent"),
}
"""Fields that say what is meant, where the resource does not say it all."""

TEXTS_MAX: Final = 100
"""Of a list: as many as may be granted in one message. What is longer is refused anyway."""

_HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(rf"{PREFIX}|eyJ[A-Za-z0-9_-]*\.")
"""A key, or the beginning of any JWT."""


def deed_of(operation: Operation, action: str, *given: Mapping[str, Any]) -> Deed:
    """Of what was sent, whatever that is: nothing is known of it yet."""
    names = NAMES.get(operation, ())
    found = {name: each[name] for each in given for name in names if name in each}
    target = tuple((name, text) for name in names if (text := _shown(found.get(name))))
    return Deed(action, target) if action or target else UNSAID


def _shown(value: object) -> str | tuple[str, ...]:
    match value:
        case bool():
            return "true" if value else ""
        case str():
            return _text(value)
        case int():
            return _text(str(value)) if -(2**63) <= value < 2**64 else _HIDDEN
        case list() | tuple():
            return tuple(_texts(value))
        case _:
            return ""


def _texts(values: Iterable[object]) -> Iterable[str]:
    for _, each in zip(range(TEXTS_MAX), values, strict=False):
        if isinstance(each, str):
            yield _text(each)


def _text(given: str) -> str:
    shown = given[:SCOPE_CHARS_MAX]
    return _HIDDEN if _SECRET.search(shown) else shown
