"""Testing: a clock that stands still and a disk that fails on demand. Shipped, for users' own tests too."""

from __future__ import annotations

from penstock.testing.clock import ManualClock
from penstock.testing.fault_disk import Crash, Fault, FaultDisk

__all__ = ["Crash", "Fault", "FaultDisk", "ManualClock"]
