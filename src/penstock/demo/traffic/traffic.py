"""The traffic: three transports publish at once, billing consumes beside them, and half way the broker is killed.

They are threads of the demo with connections of their own. An error in any of them ends the demo, and so does a broker
that ends unexpectedly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Protocol, Self

from penstock.client.sync import Client
from penstock.core.errors import Timeout
from penstock.core.names import TopicName
from penstock.demo.base.interrupts import deferred_interrupts
from penstock.demo.base.ledger import Ledger
from penstock.demo.base.orders import TOPIC, Orders, Transport
from penstock.demo.base.screen import Step
from penstock.demo.broker.log_contents import read_log
from penstock.demo.broker.process import BrokerProcess
from penstock.demo.traffic import billing as bills
from penstock.demo.traffic.billing import CONSUMERS, Billing

_LOOK_SECONDS: Final = 0.05
_DRAIN_SECONDS: Final = 120.0
"""The bound on draining, longer than billing ever takes: messages that are left then are stuck."""


class Publisher(Protocol):
    @property
    def transport(self) -> Transport: ...

    @property
    def total(self) -> int: ...

    @property
    def done(self) -> int: ...

    def run(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KillReport:
    """The outcome of killing the broker. The demo fails if an acknowledged event is missing."""

    acknowledged: int
    found: int
    """Records on the disk after the restart. There may be more than were acknowledged: the answers of some were
    lost."""
    missing: int
    seconds: float
    """Seconds until the broker took connections again."""


class Traffic:
    """The traffic, to be used with `with`: at the end every publisher and consumer has stopped."""

    def __init__(self, broker: BrokerProcess, orders: Orders, ledger: Ledger) -> None:
        self._broker = broker
        self._orders = orders
        self._ledger = ledger
        self._pool = ThreadPoolExecutor(len(Transport) + CONSUMERS, thread_name_prefix="demo")
        self._futures: list[Future[None]] = []
        self._publishers: list[Publisher] = []
        self.billing = Billing(broker.url, len(orders))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        with deferred_interrupts():
            self.billing.stop()
            for publisher in self._publishers:
                publisher.stop()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def publish(self, publishers: list[Publisher], step: Step) -> KillReport:
        """Publish until every event has its answer. Half way the broker is killed, and started again."""
        self._publishers = publishers
        bars = [(step.bar(f"  {each.transport.value}", each.total), each) for each in publishers]
        billed = step.bar("  billed", len(self._orders))
        self._futures += [self._pool.submit(self.billing.run, number) for number in range(CONSUMERS)]
        sending = [self._pool.submit(each.run) for each in publishers]
        self._futures += sending

        def show() -> None:
            for bar, each in bars:
                bar.set(each.done)
            billed.set(self.billing.billed_count)

        self._watch(self._broker.killed_on_purpose.wait, show)
        killed = self._recover()
        self._watch(lambda seconds: not wait(sending, seconds).not_done, show)
        return killed

    def answered(self) -> dict[str, int]:
        """Return the number of answered events by transport."""
        return {each.transport.value: each.done for each in self._publishers}

    def drain(self, client: Client, step: Step) -> None:
        """Wait until billing has processed everything. Raises `Timeout` if it does not."""
        bar, most = step.bar("  billed of what is left"), 0
        until = time.monotonic() + _DRAIN_SECONDS
        while (left := bills.lag(client)) > 0:
            most = max(most, left)
            bar.set(most - left, most)
            self._check()
            if time.monotonic() > until:
                raise Timeout(f"billing has left {left:,} messages after {_DRAIN_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def _recover(self) -> KillReport:
        self._broker.kill()  # SIGKILL was sent: wait for its end
        acknowledged, began = self._ledger.acknowledged(), time.monotonic()
        self._broker.start()
        seconds = time.monotonic() - began
        found = read_log(self._broker.data, TopicName.parse(TOPIC))
        return KillReport(len(acknowledged), len(found), found.missing(acknowledged), seconds)

    def _watch(self, is_over: Callable[[float], bool], show: Callable[[], None]) -> None:
        """Wait until `is_over` returns True; it is called again and again, with the seconds that it may wait.

        Between the calls `show` updates the bars. Raises the error of any thread, and of a broker that has ended.
        """
        while not is_over(_LOOK_SECONDS):
            self._check()
            show()
        self._check()
        show()

    def _check(self) -> None:
        """Raise the error of a broker that has ended unexpectedly, or of any thread that failed."""
        self._broker.check()
        for future in self._futures:
            if future.done():
                future.result()
