"""What the operating system says of this process, under the names that Prometheus has for it. Reads `/proc`."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from penstock.server.probe import resident_bytes

_STARTED: Final = time.time()
_FILES: Final = Path("/proc/self/fd")


def process_facts() -> dict[str, float]:
    """For a thread that may wait: with many connections there are many files to count."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    facts: dict[str, float] = {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "resident_bytes": resident_bytes(),
        "start_seconds": _STARTED,
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    if _FILES.is_dir():
        facts["open_files"] = len(os.listdir(_FILES))  # noqa: PTH208 - names are counted, not used
    return facts
