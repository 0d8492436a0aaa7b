"""Protocols of the blocking client and its consumer: only the methods that `CatchUpConsumer` and `TopicReader` call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.client.consume.positions import Start
from penstock.client.wire.asks import Asks

if TYPE_CHECKING:
    from penstock.client.consume.consumer import Gap
    from penstock.client.consume.messages import Batch


class BlockingConsumer(Protocol):
    """A consumer whose methods block until they are done, such as `penstock.Consumer`."""

    @property
    def subscription(self) -> str: ...

    @property
    def gaps(self) -> list[Gap]: ...

    def receive_batch(self, timeout: float | None = None) -> Batch | None: ...

    def ack(self, done: Batch, /) -> None: ...

    def flush(self) -> None: ...

    def seek(self, position: Start, *, partition: int | None = None) -> None: ...

    def close(self) -> None: ...


class BlockingClient(Asks, Protocol):
    """A client whose consumers are `BlockingConsumer`s, such as `penstock.Client`."""

    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> BlockingConsumer: ...
