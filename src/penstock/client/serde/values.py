"""The type variable of the values that producers and consumers handle, and the error for a value that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # for the default: `Producer` alone is a `Producer[Any]`

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class ValueMismatch(ValueError):
    """The error for a value that does not fit a schema, or a payload that cannot be decoded."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        """A JSON pointer to the mismatch; empty if it concerns the whole value."""


def json_pointer(*steps: str | int) -> str:
    """Build a JSON pointer from names and indexes, with `~` and `/` in names escaped; empty without any."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
