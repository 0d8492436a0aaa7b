"""The log at work: write a million messages, kill the writer in the middle, recover, write the rest, verify all."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.core.names import TopicName
from penstock.demo.writer import order
from penstock.record.block import Block
from penstock.record.kernel_cache import prepare
from penstock.storage.disk import OsDisk
from penstock.storage.readers import DataReader
from penstock.storage.store import Store
from penstock.storage.verify import segment_paths, verify_segment, verify_sequence

_TOPIC = TopicName.parse("orders")


@dataclass
class Result:
    """What happened, in order; `holds` is False if any promise was broken."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    holds: bool = True
    next_steps: list[str] = field(default_factory=list)

    def note(self, step: str, text: str, **facts: Any) -> None:
        self.rows.append((step, text))
        self.facts |= facts

    def check(self, step: str, holds: bool, text: str) -> None:
        self.rows.append((step, f"{'ok' if holds else 'BROKEN'}: {text}"))
        self.holds = self.holds and holds


def run(messages: int, *, keep: Path | None, say: Callable[[str], None]) -> Result:
    """Raises `InvalidRequest` if `keep` is there already, unless as an empty directory."""
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidRequest(f"{keep} is there already: choose a new directory")
    prepare(say=say)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")) if keep is None else keep
        result = _story(Path(scratch), messages, say)
    if keep is not None:
        result.next_steps = [
            f"look around: penstock log info --data {keep}",
            f"             penstock log read orders --data {keep} --limit 3",
            f"             penstock segment verify {keep}",
        ]
    return result


def _story(root: Path, messages: int, say: Callable[[str], None]) -> Result:
    result = Result()
    with Store.open(root, create=True) as store:
        store.create_topic(_TOPIC)
    say(f"writing {messages:,} orders in a process of its own, and killing it half way ...")
    acknowledged = _write_and_kill(root, messages, messages // 2, result)
    say("recovering ...")
    found = _recover(root, acknowledged, result)
    say(f"writing the remaining {messages - found:,} orders ...")
    _write_rest(root, found, messages, result)
    say("reading everything back ...")
    _read_back(root, messages, result)
    say("verifying every checksum ...")
    _verify(root, messages, result)
    return result


class _Rate:
    """Messages a second between the first and the last acknowledgement: the process's start is not the log's speed."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def saw(self, count: int) -> None:
        self._marks[1 if self._marks else 0 :] = [(time.monotonic(), count)]

    @property
    def rate(self) -> float:
        (began, first), (ended, last) = (self._marks or [(0.0, 0)])[0], (self._marks or [(0.0, 0)])[-1]
        return (last - first) / max(ended - began, 1e-9)


@contextmanager
def _without_interruption() -> Iterator[list[int]]:
    """Ctrl-C is only noted. In the middle of starting a process it would leave that process to nobody."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _writer(root: Path, first: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """A writer that is gone at the end, however that comes; Ctrl-C reaches it through us alone."""
    command = [sys.executable, "-m", "penstock.demo.writer", str(root), str(_TOPIC), str(first), str(count)]
    with ExitStack() as ending:
        with _without_interruption() as interrupted:
            writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603
            ending.enter_context(writer)
        try:
            if interrupted:
                raise KeyboardInterrupt
            yield writer
        except BaseException:
            writer.kill()
            raise
    if writer.returncode not in (0, -signal.SIGKILL):
        raise StorageFailed(f"the writer ended with exit code {writer.returncode}: see what it said above")


def _acknowledged(writer: subprocess.Popen[str]) -> Iterator[int]:
    """How many orders are durable, each time the writer says so."""
    assert writer.stdout is not None  # noqa: S101 - it was asked for
    for line in writer.stdout:
        yield int(line.split()[1]) + 1


def _write_and_kill(root: Path, messages: int, kill_at: int, result: Result) -> int:
    acknowledged, clock = 0, _Rate()
    with _writer(root, 0, messages) as writer:
        for acknowledged in _acknowledged(writer):
            clock.saw(acknowledged)
            if acknowledged >= kill_at:
                writer.kill()
    rate = clock.rate
    result.note(
        "written, acknowledged, killed", f"{acknowledged:,} messages ({rate:,.0f}/s)", acknowledged=acknowledged
    )
    return acknowledged


def _recover(root: Path, acknowledged: int, result: Result) -> int:
    began = time.monotonic()
    with Store.open(root) as store:
        found = int(store.log(_TOPIC).next_offset)
    result.note("recovered", f"{found:,} messages in {time.monotonic() - began:.2f} s", recovered=found)
    result.check("nothing acknowledged is lost", found >= acknowledged, f"{acknowledged:,} ≤ {found:,}")
    return found


def _write_rest(root: Path, found: int, messages: int, result: Result) -> None:
    if found >= messages:
        return
    done, clock = found, _Rate()
    with _writer(root, found, messages - found) as writer:
        for done in _acknowledged(writer):
            clock.saw(done)
    rate = clock.rate
    result.note("written after recovery", f"{done - found:,} messages ({rate:,.0f}/s)", written_after=done - found)


def _read_back(root: Path, messages: int, result: Result) -> None:
    """Every message, in blocks and as columns, compared with what was sent."""
    began, wrong, offset = time.monotonic(), 0, 0
    reader = DataReader(root).topic(_TOPIC).partition(0)
    while offset < reader.view.next_offset:
        chunk = reader.read(offset)
        wrong += len(chunk.damages) + _wrong_in(chunk.block, offset)
        offset = int(chunk.next_offset)
    took = time.monotonic() - began
    result.note("read back", f"{offset:,} messages in {took:.1f} s", read=offset)
    result.check("every message is there once, in order, unchanged", not wrong and offset == messages, f"{wrong} wrong")


def _wrong_in(block: Block, first: int) -> int:
    found = block.to_arrow(["offset", "key", "value"]).to_pydict()
    wrong = 0
    for number, *fields in zip(range(first, first + len(block)), *found.values(), strict=True):
        sent = order(number)
        wrong += fields != [number, sent.key, sent.payload]
    return wrong


def _verify(root: Path, messages: int, result: Result) -> None:
    began = time.monotonic()
    reports = [verify_segment(OsDisk(), path) for path in segment_paths(root)]
    problems = [problem for report in reports for problem in report.problems] + verify_sequence(OsDisk(), reports)
    records, size = sum(report.records for report in reports), sum(report.size for report in reports)
    speed = size / (time.monotonic() - began) / 1e9
    result.note("verified", f"{records:,} checksums in {len(reports)} segments, {speed:.1f} GB/s", verified=records)
    result.check(
        "checksums, ids, offsets and indexes agree", not problems and records == messages, f"{len(problems)} findings"
    )
