"""The catch-up consumer: it consumes a subscription up to the end that the topic had at the start.

It stops when every offset before that end is acknowledged (by this consumer or another), filtered out, a dead letter,
or no longer in the log. It waits for messages in flight at another consumer, since they may be delivered again here.
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
"""The shortest time between two requests to the broker for the subscription's progress."""
_PATIENCE_SECONDS: Final = 2.0
"""The time without a message after which `on_wait` is called."""
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|for [\d,]+ s\b")
"""A pattern for times and durations within a reason. They are ignored when a reason is compared with the last one
reported, so that the same reason is not reported again because time has passed."""
_ELSEWHERE: Final = "others have what is left, or it is to be delivered again later"


class CatchUpConsumer:
    """An iterable of batches up to the topic's end at the start. The caller must acknowledge each batch.

    Messages that were published after the start may be among them. `on_wait` is called with the reason if no message
    comes for two seconds, and again only if the reason changes.
    """

    def __init__(self, client: Asks, consumer: BlockingConsumer, topic: str, *, on_wait: Callable[[str], None]) -> None:
        self._client = client
        self._consumer = consumer
        self._on_wait = on_wait
        self._subscription = {"topic": topic, "subscription": consumer.subscription}
        description = self._describe()
        self._ends = {cursor["partition"]: cursor["next_offset"] for cursor in description["partitions"]}
        self._behind = self._is_behind(description)
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

    def _is_behind(self, description: dict[str, Any]) -> bool:
        return any(cursor["floor"] < self._ends[cursor["partition"]] for cursor in description["partitions"])

    def _check_progress(self) -> None:
        """Ask the broker whether the subscription is still behind the end; do nothing if the last request is less than
        0.1 seconds ago. Calls `on_wait` if no message has come for too long."""
        if time.monotonic() - self._checked_at < _LOOK_SECONDS:
            return
        try:
            description = self._describe()
        except (ServiceUnavailable, Timeout):
            return  # the client is reconnecting
        self._checked_at = time.monotonic()
        self._behind = self._is_behind(description)
        if self._behind and self._checked_at - self._received_at > _PATIENCE_SECONDS:
            self._report_wait(description["state"])

    def _report_wait(self, state: list[str]) -> None:
        why = "; ".join(reason for reason in state if not reason.startswith("moving")) or _ELSEWHERE
        if (gist := _TIMES.sub("", why)) != self._last_reason:
            self._last_reason = gist
            self._on_wait(why)
