"""The time until work can begin: imports, loading kernels, recovery, and opening a data directory with many topics."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.bench import Figure, best_seconds
from penstock.bench.disk import open_log
from penstock.bench.kernels import sample
from penstock.core.clock import SystemClock
from penstock.core.ids import IdGenerator
from penstock.core.limits import MIB, Limits
from penstock.core.names import TopicName
from penstock.record import layout as at
from penstock.record.block import Draft
from penstock.storage.base.disk import OsDisk, opened
from penstock.storage.log.index import IndexFile, SegmentState
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import view_of
from penstock.storage.log.segment import index_path, read_block
from penstock.storage.store import Store

_LOAD = """
import time
import numba
began = time.perf_counter()
from penstock.record.kernels import block_kernels, kernel_cache
kernel_cache.load_all()
print(time.perf_counter() - began)
"""


_SCAN = """
import resource, sys
from pathlib import Path
from penstock.bench.start import scan_file
from penstock.record.kernels.kernel_cache import load_all
load_all()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scan_file(Path(sys.argv[1]), int(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def measure(folder: Path, *, megabytes: int = 1024, topics: int = 1000) -> Iterator[Figure]:
    yield _command("import penstock", [sys.executable, "-c", "import penstock"], 0.3)
    yield _command("penstock --help", [sys.executable, "-m", "penstock", "--help"], 0.5)
    yield _kernel_load()
    yield from recovery(folder, megabytes)
    yield topics_open(folder / "topics", topics)


def _against(name: str, seconds: float, limit: float) -> Figure:
    reference = f"{limit} s allowed"
    return Figure(name=name, value=seconds, unit="s", reference=reference, reference_value=limit, ratio=limit / seconds)


def _command(name: str, command: list[str], limit: float) -> Figure:
    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own interpreter

    return _against(name, best_seconds(run, rounds=5), limit)


def _kernel_load() -> Figure:
    def run() -> float:
        done = subprocess.run([sys.executable, "-c", _LOAD], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        return float(done.stdout)

    return _against("load the cached kernels", min(run() for _ in range(5)), 0.5)


def recovery(folder: Path, megabytes: int) -> Iterator[Figure]:
    """Measure the recovery of a segment whose writer was killed, compared with scanning the same file; and the memory
    that scanning takes."""
    path = folder / "recovery"
    _fill(path, megabytes)
    segment = view_of(OsDisk(), path).segments[-1]
    scanned = best_seconds(lambda: scan_file(segment.path, segment.size), rounds=3)
    memory = _scan_memory(segment.path, segment.size)
    recovered = min(_recover(path) for _ in range(3))
    yield Figure(
        name=f"recover an active segment of {megabytes} MiB",
        value=segment.size / recovered / 1e9,
        unit="GB/s",
        reference="scan and verify of the file",
        reference_value=segment.size / scanned / 1e9,
        ratio=scanned / recovered,
    )
    yield Figure(
        name=f"memory of scanning {megabytes} MiB",
        value=memory / MIB,
        unit="MiB",
        reference="64 MiB allowed",
        reference_value=64,
        ratio=64 * MIB / max(memory, MIB),
    )


def _fill(path: Path, megabytes: int) -> None:
    limits = Limits(segment_bytes_first=(megabytes + 1) * MIB, segment_bytes_max=(megabytes + 1) * MIB)
    clock = SystemClock()
    log = Log.open(OsDisk(), path, ids=IdGenerator(clock, node=1), clock=clock, limits=limits)
    draft = Draft.of([sample(1024)] * 3000)
    for _ in range(megabytes * MIB // len(draft.data)):
        log.append(draft)
    log.close_files()  # not closed, as if the writer was killed


def _recover(path: Path) -> float:
    began = time.perf_counter()
    log = open_log(path)
    took = time.perf_counter() - began
    segment = log.view.segments[-1]
    assert IndexFile(OsDisk(), index_path(segment.path), segment.base).header().state is SegmentState.OPEN  # type: ignore[union-attr]  # noqa: S101
    log.close_files()
    return took


def scan_file(path: Path, size: int) -> None:
    with opened(OsDisk(), path) as file:
        position = 0
        while position < size:
            _, stop = read_block(file, position, size)
            if stop.reason not in (at.MORE, at.AT_END):
                raise AssertionError(str(stop))
            position = stop.position


def _scan_memory(path: Path, size: int) -> int:
    """Return by how many bytes scanning a file raises the peak memory of a process. A new process is measured, since a
    peak never falls."""
    command = [sys.executable, "-c", _SCAN, str(path), str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own interpreter
    return int(done.stdout) * 1024


def topics_open(root: Path, topics: int) -> Figure:
    with Store.open(root, create=True) as store:
        for number in range(topics):
            name = TopicName.parse(f"bench.topic{number}")
            store.create_topic(name)
            store.append(name, Draft.of([sample(100)]))

    def reopen() -> None:
        Store.open(root).close()

    return _against(f"open a data directory of {topics} topics", best_seconds(reopen, rounds=2), 2.0)
