"""The protocol of a client that sends requests to the broker's system topics. Code that reads or administers through
system topics needs no other method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Asks(Protocol):
    """A blocking client with the method `ask`."""

    def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request with the fields `facts` to a system topic, and return its answer. Raises the error in the
        answer."""
        ...
