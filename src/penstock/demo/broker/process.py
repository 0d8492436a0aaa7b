"""The broker of the demo as a separate process, so that it can be killed. It is started again on the same ports.

The process has a session of its own: Ctrl-C does not reach it directly, and it can go on when the demo has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ServiceUnavailable
from penstock.demo.base.interrupts import deferred_interrupts

_START_SECONDS: Final = 120.0
"""The longest time that a start may take: the first on a machine may wait for other processes that compile kernels."""
_STOP_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.02
_LINGER_SECONDS: Final = 10.0
_LOG_SHOWN: Final = 2000
"""The number of characters from the end of the broker's log that an error has."""
_KEPT: Final = ("PENSTOCK_KERNEL_CACHE",)


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the broker; 0 lets the broker take any free port."""

    tcp: int = 0
    ws: int = 0
    http: int = 0


class BrokerProcess:
    """A process of `penstock serve` with default settings; variables of the environment do not change them. Its files
    are in one directory."""

    host: Final = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.log_file = folder / "broker.log"
        self.ready_file = folder / "broker.json"
        self.ports = Ports()
        self.pid = 0
        self.killed_on_purpose = threading.Event()
        """Set from the moment when the demo kills the broker until it is started again."""

        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"tcp://{self.host}:{self.ports.tcp}"

    @property
    def ws_url(self) -> str:
        return f"ws://{self.host}:{self.ports.ws}"

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.ports.http}"

    def as_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "tcp": self.url, "websocket": self.ws_url, "http": self.http_url}

    def start(self) -> None:
        """Start the broker, and wait until it takes connections. After the first start it always has the same ports.

        Raises `ServiceUnavailable`, with the end of its log, if it does not start.
        """
        self.ready_file.unlink(missing_ok=True)
        self.killed_on_purpose.clear()
        with self.log_file.open("ab") as log, deferred_interrupts():
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=_environment(os.environ),
                start_new_session=True,
            )
        until = time.monotonic() + _START_SECONDS
        while not self.ready_file.exists():
            self.check()
            if time.monotonic() > until:
                raise ServiceUnavailable(f"the broker did not start within {_START_SECONDS:.0f} s: {self._log_tail()}")
            time.sleep(_LOOK_SECONDS)
        self._read_ready_file(json.loads(self.ready_file.read_text()))

    def _command(self) -> list[str]:
        chosen = {
            "--data": self.data,
            "--tcp-port": self.ports.tcp,
            "--ws-port": self.ports.ws,
            "--http-port": self.ports.http,
            "--ready-file": self.ready_file,
            "--log-level": "warn",
        }
        options = [str(each) for pair in chosen.items() for each in pair]
        return [sys.executable, "-m", "penstock", "serve", *options]

    def _read_ready_file(self, ready: Mapping[str, Any]) -> None:
        self.pid = int(ready["pid"])
        self.ports = Ports(ready["tcp_port"], ready["ws_port"], ready["http_port"])

    def check(self) -> None:
        """Raise `ServiceUnavailable` if the broker has ended unexpectedly."""
        code = None if self._process is None else self._process.poll()
        if code is not None and not self.killed_on_purpose.is_set():
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise ServiceUnavailable(f"the broker {ended}, and nobody asked it to. {self._log_tail()}")

    def check_soon(self) -> None:
        """Wait at most ten seconds for the process to end, and then check: a connection breaks before its process has
        ended."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LINGER_SECONDS)
        self.check()

    def send_kill(self) -> None:
        """Send SIGKILL, from any thread, without waiting: as abrupt as a power cut."""
        self.killed_on_purpose.set()
        if self._process is not None:
            self._process.kill()

    def kill(self) -> None:
        """Kill the broker and wait for its end. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the broker in order; kill it if that takes too long. Idempotent."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self.kill()

    def leave(self) -> None:
        """Leave the broker running when the demo is over."""
        if self._process is not None:
            self._process.returncode = 0  # so that Python neither waits for it nor warns of it
            self._process = None

    def _log_tail(self) -> str:
        text = self.log_file.read_text(errors="replace").strip() if self.log_file.exists() else ""
        return f"It said: {text[-_LOG_SHOWN:]}" if text else "It said nothing."


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings of other brokers on this machine."""
    return {name: value for name, value in given.items() if not name.startswith("PENSTOCK_") or name in _KEPT}
