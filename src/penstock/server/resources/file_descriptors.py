"""File descriptors: a part of them is reserved for the log, and never used for connections."""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.limits import Limits

_LOG: Final = logging.getLogger(__name__)
NON_LOG_DESCRIPTORS: Final = 152
"""Descriptors for the catalog, listeners, workers and their pipes, and reads under way."""
_DESCRIPTORS_PER_LOG: Final = 2  # a segment and its index
_RESERVE_DIVISOR: Final = 4
"""The divisor of the reserve: where descriptors are scarce, three quarters stay for connections."""


@dataclass(frozen=True, slots=True)
class DescriptorLimits:
    """The process's limit of descriptors, and the part of it that connections do not get."""

    limit: int
    reserve: int

    @classmethod
    def split(cls, limit: int, open_logs_max: int) -> DescriptorLimits:
        """Reserve what the logs may need, but not more than a quarter of all."""
        return cls(limit, min(NON_LOG_DESCRIPTORS + _DESCRIPTORS_PER_LOG * open_logs_max, limit // _RESERVE_DIVISOR))

    @property
    def open_logs_max(self) -> int:
        """The number of logs whose files fit into the reserve; half of it where it is small."""
        return max(
            self.reserve // (2 * _DESCRIPTORS_PER_LOG), (self.reserve - NON_LOG_DESCRIPTORS) // _DESCRIPTORS_PER_LOG, 1
        )

    def for_probes(self) -> DescriptorLimits:
        """Return the limits for health checks and metrics: they may use a part of the reserve."""
        return replace(self, reserve=self.reserve * 3 // 4)

    @property
    def connection_limit(self) -> int:
        """The first descriptor that belongs to the reserve. The system gives the lowest free number, so one from here
        on means that the others are in use."""
        return self.limit - self.reserve


def raise_descriptor_limit(connections_max: int, limits: Limits) -> Limits:
    """Raise the process's limit as far as the machine allows, and return the log's limits that fit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + NON_LOG_DESCRIPTORS + _DESCRIPTORS_PER_LOG * limits.open_logs_max
    most = max(needed, soft) if hard == resource.RLIM_INFINITY else hard
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        _LOG.warning("fewer files than connections", extra={"open_files_max": most, "wanted": needed})
    descriptors = DescriptorLimits.split(most, limits.open_logs_max)
    return replace(limits, open_logs_max=min(limits.open_logs_max, descriptors.open_logs_max))


def process_descriptors(open_logs_max: int | None = None) -> DescriptorLimits:
    """Return the limits of this process. `open_logs_max` defaults to the ordinary limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorLimits.split(soft, open_logs_max or Limits().open_logs_max)
