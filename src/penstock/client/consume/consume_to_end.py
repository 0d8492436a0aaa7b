"""Consuming a subscription up to where its topic ended when that began.

There is no more to wait for when all that lay before that end is settled: acknowledged here or elsewhere, filtered
out, among the dead letters, or gone. What another consumer has in flight may still come here, and is waited for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import ServiceUnavailable, Timeout

if TYPE_CHECKING:
    from penstock.client.sync import Batch, Client, Consumer

_LOOK_SECONDS: Final = 0.1
"""How often the broker is asked how far it is."""
_PATIENCE_SECONDS: Final = 2.0
"""Without a message for so long, it is said why."""
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|for [\d,]+ s\b")
"""Points and lengths of time within a reason: one that differs in nothing else has been told."""
_ELSEWHERE: Final = "others have what is left, or it is to be delivered again later"


class CatchingUp:
    """Iterate: messages that arrived together, for the caller to acknowledge. Some that came meanwhile may be among
    them; `waits` is told why nothing comes for long."""

    def __init__(self, client: Client, consumer: Consumer[Any], topic: str, *, waits: Callable[[str], None]) -> None:
        self._client = client
        self._consumer = consumer
        self._waits = waits
        self._asked = {"topic": topic, "subscription": consumer.subscription}
        found = self._described()
        self._ends = {lane["partition"]: lane["next_offset"] for lane in found["partitions"]}
        self._behind = self._is_behind(found)
        self._looked = self._came = time.monotonic()
        self._told = ""

    def __iter__(self) -> Iterator[Batch]:
        while self._behind:
            try:
                batch = self._consumer.receive_batch(_LOOK_SECONDS)
            except TimeoutError:
                self._look()
                continue
            if batch is None:
                return
            yield batch
            self._came = time.monotonic()
            self._look()

    def _described(self) -> dict[str, Any]:
        return self._client.ask("system.subscription.describe", self._asked)

    def _is_behind(self, found: dict[str, Any]) -> bool:
        return any(lane["floor"] < self._ends[lane["partition"]] for lane in found["partitions"])

    def _look(self) -> None:
        """How far it is now, if nobody looked just before."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        try:
            found = self._described()
        except (ServiceUnavailable, Timeout):
            return  # the connection is being made again
        self._looked = time.monotonic()
        self._behind = self._is_behind(found)
        if self._behind and self._looked - self._came > _PATIENCE_SECONDS:
            self._tell(found["state"])

    def _tell(self, state: list[str]) -> None:
        why = "; ".join(each for each in state if not each.startswith("moving")) or _ELSEWHERE
        if (gist := _TIMES.sub("", why)) != self._told:
            self._told = gist
            self._waits(why)
