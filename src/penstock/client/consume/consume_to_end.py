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
    from penstock.client.consume.blocking import BlockingConsumer
    from penstock.client.consume.messages import Batch
    from penstock.client.wire.asks import Asks

_LOOK_SECONDS: Final = 0.1
"""How often the broker is asked how far it is."""
_PATIENCE_SECONDS: Final = 2.0
"""Without a message for so long, it is said why."""
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|for [\d,]+ s\b")
"""Points and lengths of time within a reason: one that differs in nothing else has been told."""
_ELSEWHERE: Final = "others have what is left, or it is to be delivered again later"


class CatchUpConsumer:
    """Iterate: messages that arrived together, for the caller to acknowledge. Some that came meanwhile may be among
    them; `on_wait` is told why nothing comes for long."""

    def __init__(self, client: Asks, consumer: BlockingConsumer, topic: str, *, on_wait: Callable[[str], None]) -> None:
        self._client = client
        self._consumer = consumer
        self._on_wait = on_wait
        self._subscription = {"topic": topic, "subscription": consumer.subscription}
        found = self._describe()
        self._ends = {partition["partition"]: partition["next_offset"] for partition in found["partitions"]}
        self._behind = self._is_behind(found)
        self._checked_at = self._received_at = time.monotonic()
        self._last_reason = ""

    def __iter__(self) -> Iterator[Batch]:
        while self._behind:
            try:
                batch = self._consumer.receive_batch(_LOOK_SECONDS)
            except TimeoutError:
                self._check_progress()
                continue
            if batch is None:
                return
            yield batch
            self._received_at = time.monotonic()
            self._check_progress()

    def _describe(self) -> dict[str, Any]:
        return self._client.ask("system.subscription.describe", self._subscription)

    def _is_behind(self, found: dict[str, Any]) -> bool:
        return any(partition["floor"] < self._ends[partition["partition"]] for partition in found["partitions"])

    def _check_progress(self) -> None:
        """How far it is now, if nobody looked just before."""
        if time.monotonic() - self._checked_at < _LOOK_SECONDS:
            return
        try:
            found = self._describe()
        except (ServiceUnavailable, Timeout):
            return  # the connection is being made again
        self._checked_at = time.monotonic()
        self._behind = self._is_behind(found)
        if self._behind and self._checked_at - self._received_at > _PATIENCE_SECONDS:
            self._report_wait(found["state"])

    def _report_wait(self, state: list[str]) -> None:
        why = "; ".join(each for each in state if not each.startswith("moving")) or _ELSEWHERE
        if (gist := _TIMES.sub("", why)) != self._last_reason:
            self._last_reason = gist
            self._on_wait(why)
