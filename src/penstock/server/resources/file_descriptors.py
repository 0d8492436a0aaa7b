"""File descriptors: a part of them is reserved for the log, and never used for connections."""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.limits import Limits

_LOG: Final = logging.getLogger(__name__)
NON_LOG_DESCRIPTORS: Final = 152
"""The file descriptors for the catalog, listeners, workers and their pipes, and reads under way."""
_DESCRIPTORS_PER_LOG: Final = 2  # a segment and its index
_RESERVE_DIVISOR: Final = 4
"""The divisor for the largest reserve: the log gets at most a quarter of all descriptors, so that connections have at
least three quarters where they are scarce."""


@dataclass(frozen=True, slots=True)
class DescriptorLimits:
    """The process's limit of file descriptors, and how many of them are reserved: connections do not get these."""

    limit: int
    reserve: int

    @classmethod
    def split(cls, limit: int, open_logs_max: int) -> DescriptorLimits:
        """Return the limits with a reserve for `open_logs_max` logs and the broker's other files, but for no more than
        a quarter of `limit`."""
        return cls(limit, min(NON_LOG_DESCRIPTORS + _DESCRIPTORS_PER_LOG * open_logs_max, limit // _RESERVE_DIVISOR))

    @property
    def open_logs_max(self) -> int:
        """The number of logs that may be open with this reserve, at least 1. If the reserve is small, half of it is for
        logs."""
        return max(
            self.reserve // (2 * _DESCRIPTORS_PER_LOG), (self.reserve - NON_LOG_DESCRIPTORS) // _DESCRIPTORS_PER_LOG, 1
        )

    def for_probes(self) -> DescriptorLimits:
        """Return the limits for the HTTP port: health checks and metrics may use a quarter of the reserve."""
        return replace(self, reserve=self.reserve * 3 // 4)

    @property
    def connection_limit(self) -> int:
        """The lowest number of a reserved descriptor. The system always gives the lowest free number, so a connection
        that gets this number or a higher one shows that all others are in use."""
        return self.limit - self.reserve


def raise_descriptor_limit(connections_max: int, limits: Limits) -> Limits:
    """Raise the process's limit of file descriptors as far as the machine allows, and return `limits` with as many open
    logs as fit. Logs a warning if there are fewer descriptors than wanted."""
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
    """Return the limits of this process. `open_logs_max` is the most logs that may be open, by default that of
    `Limits`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorLimits.split(soft, open_logs_max or Limits().open_logs_max)
