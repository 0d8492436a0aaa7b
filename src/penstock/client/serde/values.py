"""What producers take and consumers give: bytes, or whatever their schema is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # for its default: `Producer` alone is a producer of anything

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")


class ValueMismatch(ValueError):
    """A value that does not fit a schema, or a payload that no value can be made of."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        """Where, as a JSON pointer; empty for all of it."""


def json_pointer(*steps: str | int) -> str:
    """A JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
