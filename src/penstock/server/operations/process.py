"""Figures of the process and the machine, under the names of the wire protocol's metrics and of Prometheus."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessProbe:
    """Measures the process and the machine. Each call returns the figures by name; those for CPU use are for the time
    since the last call."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._last = (self._began, self._cpu_seconds(), _machine_ticks())

    def __call__(self) -> dict[str, float]:
        now, used, ticks = time.monotonic(), self._cpu_seconds(), _machine_ticks()
        before, used_before, ticks_before = self._last
        self._last = (now, used, ticks)
        memory, total, free = resident_bytes(), *_machine_bytes()
        return {
            "process.cpu.percent": (used - used_before) / max(now - before, 1e-9) / (os.cpu_count() or 1),
            "process.memory.bytes": memory,
            "process.memory.percent": memory / total if total else 0.0,
            "process.uptime": int(now - self._began),
            "system.cpu.percent": _busy(ticks_before, ticks),
            "system.memory.bytes": total - free,
            "system.memory.percent": (total - free) / total if total else 0.0,
            "system.uptime": int(_first_number("/proc/uptime")),
        }

    def _cpu_seconds(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime


def _read(path: str) -> str:
    """Return the text of the file; an empty text if the machine has no such file."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _first_number(path: str) -> float:
    words = _read(path).split()
    return float(words[0]) if words else 0.0


def resident_bytes() -> int:
    words = _read("/proc/self/statm").split()
    return int(words[1]) * _PAGE if len(words) > 1 else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _machine_bytes() -> tuple[int, int]:
    fields = {line.split(":")[0]: line.split() for line in _read("/proc/meminfo").splitlines()}
    total, free = fields.get("MemTotal"), fields.get("MemAvailable")
    return (int(total[1]) * 1024, int(free[1]) * 1024) if total and free else (0, 0)


def _machine_ticks() -> tuple[int, int]:
    """Return the idle and the total CPU ticks of the machine."""
    words = _read("/proc/stat").partition("\n")[0].split()[1:9]
    numbers = [int(word) for word in words]
    return (sum(numbers[3:5]), sum(numbers)) if numbers else (0, 0)


def _busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    passed = after[1] - before[1]
    return 1 - (after[0] - before[0]) / passed if passed else 0.0


_STARTED: Final = time.time()
_FILES: Final = Path("/proc/self/fd")


def process_figures() -> dict[str, float]:
    """Return the figures by name for Prometheus. Call it in a thread: it counts the open files, which may be many."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures: dict[str, float] = {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "resident_bytes": resident_bytes(),
        "start_seconds": _STARTED,
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    if _FILES.is_dir():
        figures["open_files"] = len(os.listdir(_FILES))  # noqa: PTH208 - names are counted, not used
    return figures
