"""Values that producers take and consumers return: bytes, or values of their schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # for the default: `Producer` alone is a `Producer[Any]`

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class ValueMismatch(ValueError):
    """A value that does not fit a schema, or a payload from which no value can be made."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        """A JSON pointer to the mismatch; empty for the whole value."""


def json_pointer(*steps: str | int) -> str:
    """Build a JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
