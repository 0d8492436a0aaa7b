"""The interface of a client that calls the broker's system topics: reads and admin commands need nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Asks(Protocol):
    """A blocking client, as far as calls of system topics go."""

    def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a system topic. Raises its error."""
        ...
