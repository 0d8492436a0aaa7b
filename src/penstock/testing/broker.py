"""A real broker for tests: `penstock serve` in a process of its own, on free ports, with a directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.errors import ServiceUnavailable

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0


class RunningBroker:
    """A broker in a process of its own, for a `with` block. It uses free ports of this machine; its output is in `log`.

    HTTP takes a while to start and is off, except with `RunningBroker("--http-port", "0")`.
    """

    def __init__(self, *arguments: str, data: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._environment = dict(os.environ if environment is None else environment)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-broker-")
        self.data = data or Path(self._folder.name) / "data"
        self._log_file = Path(self._folder.name) / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def start(self) -> Self:
        """Start the broker; it accepts connections on return. Raises `ServiceUnavailable` with its output if it does
        not start."""
        ready = Path(self._folder.name) / "ready.json"
        ready.unlink(missing_ok=True)
        options = ["--data", str(self.data), "--tcp-port", "0", "--ws-port", "0", "--http-port", "off"]
        options += ["--ready-file", str(ready)]
        command = [sys.executable, "-m", "penstock", "serve", *options, *self._arguments]
        with self._log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        until = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise ServiceUnavailable(f"the broker did not start: {self.log}")
            time.sleep(0.01)
        self.ready = json.loads(ready.read_text())
        return self

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return int(self.ready["pid"])

    @property
    def tcp_port(self) -> int:
        """The port for TCP."""
        return int(self.ready["tcp_port"])

    @property
    def ws_port(self) -> int:
        """The port for WebSockets."""
        return int(self.ready["ws_port"])

    @property
    def url(self) -> str:
        """The address for `penstock.connect`."""
        return f"tcp://127.0.0.1:{self.tcp_port}"

    @property
    def http_url(self) -> str:
        """The address of HTTP, if the broker was started with `--http-port`."""
        return f"http://127.0.0.1:{int(self.ready['http_port'])}"

    @property
    def log(self) -> str:
        """Everything that the broker has logged."""
        return self._log_file.read_text(errors="replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the broker with a signal, and return its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill the process at once, with no chance to finish anything."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()
        self._folder.cleanup()
