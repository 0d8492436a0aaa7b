"""Types of the fixtures of these tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import pytest

from penstock.record.kernels import block_kernels, kernel_cache  # noqa: F401 - importing the kernels is what registers them
from penstock.record.message import Message


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    raw: bytes
    """Standard output as it was written."""
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode(errors="replace")

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.raw.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]

    def refused(self, *words: str) -> None:
        """Check for one sentence on standard error, nothing on standard output, and exit code 2."""
        assert (self.code, self.out) == (2, "")
        assert len(self.err.splitlines()) == 1, self.err
        assert self.err.startswith("penstock: ")
        for word in words:
            assert word in self.err


class Run(Protocol):
    def __call__(self, *arguments: str | Path, given: bytes = b"", **options: Any) -> Outcome: ...


class Start(Protocol):
    def __call__(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]: ...


class Fill(Protocol):
    def __call__(
        self, messages: Sequence[Message | bytes] = (), *, topic: str = "orders", partitions: int = 1
    ) -> Path: ...


def said(stream: IO[bytes] | None, word: str) -> None:
    """Wait for a line with this word."""
    assert stream is not None
    for line in stream:
        if word in line.decode():
            return
    raise AssertionError(f"ended without {word!r}")


def ended(process: subprocess.Popen[bytes], number: int = signal.SIGINT) -> tuple[int, bytes, bytes]:
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    """Return every file below a directory, with its bytes and modification time."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


def child_environment(temporary: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of child processes: a user's, with cached kernels and bytecode, so that each starts in a
    second."""
    kernel_cache.load_all()
    kept = {name: value for name, value in os.environ.items() if name not in ("PENSTOCK_DATA", "PYTHONUNBUFFERED")}
    if kept.pop("PYTHONDONTWRITEBYTECODE", None):
        kept["PYTHONPYCACHEPREFIX"] = str(temporary.getbasetemp().parent / "bytecode")
    return kept
