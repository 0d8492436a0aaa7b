"""Testing tools: a clock that stands still, a disk that fails on demand, a running broker. For users' tests too."""

from __future__ import annotations

from penstock.testing.broker import RunningBroker
from penstock.testing.clock import ManualClock
from penstock.testing.fault_disk import Crash, Fault, FaultDisk
from penstock.testing.stream import ScriptedStream

__all__ = ["Crash", "Fault", "FaultDisk", "ManualClock", "RunningBroker", "ScriptedStream"]
