"""Rate limits: messages per second of each connection and each topic. A burst may have as many messages as one second
allows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.core.errors import QuotaExceeded
from penstock.core.names import TopicName
from penstock.protocol.batch_reader import PublishBatch

_TOPICS_MAX: Final = 10_000  # topics with a bucket at once: idle ones are forgotten, and those beyond share one
_ALL_OTHERS: Final = TopicName("default", "system.others")


class TokenBucket:
    """A token bucket: it gains `rate` tokens a second, holds at most `rate` tokens, and starts full. A message costs
    one token."""

    __slots__ = ("_at_ms", "_rate", "_tokens")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._at_ms = now_ms

    def take(self, wanted: int, now_ms: int) -> int:
        """Take up to `wanted` tokens. Returns how many were taken."""
        gained = max(0, now_ms - self._at_ms) * self._rate / 1000
        self._at_ms = now_ms
        self._tokens = min(float(self._rate), self._tokens + gained)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def take_all(self, wanted: int, now_ms: int) -> bool:
        """Take all wanted tokens, or none. Returns whether they were taken. If more are wanted than the bucket can
        hold, it must be full, and goes below zero."""
        self.take(0, now_ms)
        if self._tokens < min(wanted, self._rate):
            return False
        self._tokens -= wanted
        return True

    def is_full(self, now_ms: int) -> bool:
        """Return whether the bucket is full again. A full bucket can be forgotten: a new one would be the same."""
        return self._tokens + max(0, now_ms - self._at_ms) * self._rate / 1000 >= self._rate


class RateLimiter:
    """The limits of connections and of topics. A limit of None means no limit."""

    def __init__(self, *, connection: int | None, topic: int | None) -> None:
        self._connection = connection
        self._topic = topic
        self._topics: dict[TopicName, TokenBucket] = {}
        self._own: dict[TopicName, int] = {}
        """The rates of topics that have one of their own, in place of the common one."""

        self._swept_ms = -1000

    def for_connection(self, now_ms: int) -> TokenBucket | None:
        """Return a bucket for a new connection; None if connections have no limit."""
        return None if self._connection is None else TokenBucket(self._connection, now_ms)

    def set_topic(self, topic: TopicName, rate: int | None) -> None:
        """Set a topic's own rate. With None, the common rate of topics applies again."""
        self._topics.pop(topic, None)
        if rate is None:
            self._own.pop(topic, None)
        else:
            self._own[topic] = rate

    def topic_rate(self, topic: TopicName) -> int | None:
        return self._own.get(topic, self._topic)

    def allow(self, own: TokenBucket | None, topic: TopicName | None, now_ms: int, count: int = 1) -> bool:
        """Count messages of one topic against the limits of the connection, whose bucket is `own`, and of the topic.
        Returns False if a limit is exceeded. If only the topic's is, the connection has paid all the same."""
        if own is not None and not own.take_all(count, now_ms):
            return False
        bucket = None if topic is None else self._bucket(topic, now_ms)
        return bucket is None or bucket.take_all(count, now_ms)

    def allowed(self, own: TokenBucket | None, batch: PublishBatch, now_ms: int) -> Any:
        """Count a batch against the limits. Returns a mask of the messages that may pass; None if all may."""
        if own is None and self._topic is None and not self._own:
            return None
        allowed = np.ones(len(batch), np.bool_)
        if own is not None:
            allowed[own.take(len(batch), now_ms) :] = False
        if self._topic is not None or self._own:
            for topic, rows in _by_topic(batch, allowed).items():
                bucket = self._bucket(topic, now_ms)
                if bucket is not None:
                    allowed[rows[bucket.take(len(rows), now_ms) :]] = False
        return None if allowed.all() else allowed

    def _bucket(self, topic: TopicName, now_ms: int) -> TokenBucket | None:
        rate = self.topic_rate(topic)
        if rate is None:
            return None
        bucket = self._topics.get(topic)
        if bucket is None:
            if len(self._topics) >= _TOPICS_MAX - 1 and now_ms - self._swept_ms >= 1000:
                self._swept_ms = now_ms
                self._topics = {key: bucket for key, bucket in self._topics.items() if not bucket.is_full(now_ms)}
            if len(self._topics) >= _TOPICS_MAX - 1:
                topic = _ALL_OTHERS
            bucket = self._topics.setdefault(topic, TokenBucket(rate, now_ms))
        return bucket

    def exceeded(self, topic: TopicName | None = None) -> QuotaExceeded:
        rate = self._topic if topic is None else self.topic_rate(topic)
        rates = {"connection_rate_max": self._connection, "topic_rate_max": rate}
        return QuotaExceeded("Too many messages a second; slow down and try again", **rates)


def _by_topic(batch: PublishBatch, wanted: Any) -> dict[TopicName, list[int]]:
    """Return the row numbers of the wanted messages, by topic. System topics are left out, as they have no rate."""
    rows_by_topic: dict[TopicName, list[int]] = {}
    for number, head, _ in batch.counts():
        if not head.is_system:
            rows = (row for row in batch.rows_with_head(number).tolist() if wanted[row])
            rows_by_topic.setdefault(head.destination, []).extend(rows)
    return {topic: sorted(rows) for topic, rows in rows_by_topic.items()}
