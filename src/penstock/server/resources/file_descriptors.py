"""File descriptors: a part of them is for the log and is never a connection's."""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.limits import Limits

_LOG: Final = logging.getLogger(__name__)
NON_LOG_DESCRIPTORS: Final = 152
"""The catalog, listeners, workers and their pipes, reads under way."""
_DESCRIPTORS_PER_LOG: Final = 2  # a segment and its index
_RESERVE_DIVISOR: Final = 4
"""At least three of four are for connections, where there are too few for everybody."""


@dataclass(frozen=True, slots=True)
class DescriptorLimits:
    """How many there are, and how many of them no connection gets."""

    limit: int
    reserve: int

    @classmethod
    def split(cls, limit: int, open_logs_max: int) -> DescriptorLimits:
        """As many in reserve as the logs may take, and not more than a part of all."""
        return cls(limit, min(NON_LOG_DESCRIPTORS + _DESCRIPTORS_PER_LOG * open_logs_max, limit // _RESERVE_DIVISOR))

    @property
    def open_logs_max(self) -> int:
        """The logs whose files fit into the reserve; half of it where it is small."""
        return max(
            self.reserve // (2 * _DESCRIPTORS_PER_LOG), (self.reserve - NON_LOG_DESCRIPTORS) // _DESCRIPTORS_PER_LOG, 1
        )

    def for_probes(self) -> DescriptorLimits:
        """For those who ask whether the broker is well: a part of the reserve is theirs, too."""
        return replace(self, reserve=self.reserve * 3 // 4)

    @property
    def connection_limit(self) -> int:
        """The system gives the lowest number that is free: one from here on means that the reserve is being used."""
        return self.limit - self.reserve


def raise_descriptor_limit(connections_max: int, limits: Limits) -> Limits:
    """Have as many as the machine allows; the limits of the log that go with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + NON_LOG_DESCRIPTORS + _DESCRIPTORS_PER_LOG * limits.open_logs_max
    most = max(wanted, soft) if hard == resource.RLIM_INFINITY else hard
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        _LOG.warning("fewer files than connections", extra={"open_files_max": most, "wanted": wanted})
    found = DescriptorLimits.split(most, limits.open_logs_max)
    return replace(limits, open_logs_max=min(limits.open_logs_max, found.open_logs_max))


def process_descriptors(open_logs_max: int | None = None) -> DescriptorLimits:
    """`open_logs_max`: what the operator wants, or else what everybody has."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorLimits.split(soft, open_logs_max or Limits().open_logs_max)
