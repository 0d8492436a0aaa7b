"""A standalone Spark cluster out of PySpark's own package: a master and two workers, each with its own network.

They run in network namespaces with a bridge between them, and share nothing of loopback.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_ports
from tests.spark.processes import session

_DRIVER, _MASTER, _PORT, _WORKER, _WORK = "10.0.0.1", "10.0.0.2", "7077", "10.0.0.3", "/var/lib/spark-work"
"""The machines of docs/spark.md."""
_START_SECONDS = 300.0
_LOOPBACK = "127.0.0.1"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Network:
    """The cluster's network. Machine 0 is this one; others are namespaces. Where those cannot be made, all are this
    machine, on loopback."""

    number: int
    apart: bool

    def address(self, machine: int) -> str:
        return f"198.18.{self.number % 256}.{machine + 1}" if self.apart else _LOOPBACK

    def on(self, machine: int) -> list[str]:
        """Return the command prefix that runs a command on a machine."""
        return ["ip", "netns", "exec", self.name(machine)] if self.apart and machine else []

    def name(self, machine: int) -> str:
        return f"penstock-{self.number}-{machine}"

    @property
    def bridge(self) -> str:
        return f"pnst{self.number}"


@contextlib.contextmanager
def network(machines: int) -> Iterator[Network]:
    """Yield a network of this process: removed afterwards in any case, like those of processes that died."""
    made = Network(os.getpid(), apart=True)
    _sweep()
    try:
        _build(made, machines)
    except OSError as error:
        _remove(made, machines)
        print(f"no network namespaces here ({error}): the workers share loopback")
        made = Network(os.getpid(), apart=False)
    try:
        yield made
    finally:
        if made.apart:
            _remove(made, machines)


def _build(made: Network, machines: int) -> None:
    if os.geteuid() or shutil.which("ip") is None:
        raise OSError("it takes root, and the command ip")
    _ip("link", "add", made.bridge, "type", "bridge")
    _ip("addr", "add", f"{made.address(0)}/24", "dev", made.bridge)
    _ip("link", "set", made.bridge, "up")
    for machine in range(1, machines):
        name, near = made.name(machine), f"pnst{made.number}v{machine}"
        _ip("netns", "add", name)
        _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", near, "master", made.bridge, "up")
        _ip("-n", name, "addr", "add", f"{made.address(machine)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")


def _remove(made: Network, machines: int) -> None:
    for machine in range(1, machines):
        with contextlib.suppress(OSError):
            _ip("link", "del", f"pnst{made.number}v{machine}")
        with contextlib.suppress(OSError):
            _ip("netns", "del", made.name(machine))
    with contextlib.suppress(OSError):
        _ip("link", "del", made.bridge)


def _sweep() -> None:
    names = Path("/run/netns")
    for found in names.iterdir() if names.exists() else ():
        told = re.fullmatch(r"penstock-(\d+)-(\d+)", found.name)
        if told and not Path("/proc", told[1]).exists():
            _remove(Network(int(told[1]), apart=True), int(told[2]) + 1)


def _documented() -> tuple[list[str], list[str]]:
    """Return two scripts of docs/spark.md: the start of a cluster (exports, master, worker), and the driver's
    command."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    cluster, driver, *_ = re.findall(r"```sh\n(.*?)```", page.partition("## Clusters\n")[2], re.DOTALL)
    return cluster.splitlines(), driver.splitlines()


def _typed(script: str, names: dict[str, str]) -> str:
    """Return the script with the names that it has on this machine."""
    return re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], script)


@dataclass
class Daemon:
    """A process of the cluster, with all that it has started."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill it at once, as a power cut would."""
        while left := [pid for pid, _ in session(self.process.pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait()


@dataclass
class Cluster:
    network: Network
    folder: Path
    """Folder of all logs."""
    daemons: list[Daemon] = field(default_factory=list)
    ports: list[int] = field(default_factory=lambda: free_ports(4))
    """Ports of the master, and of the web pages of all three: on loopback other processes use ports, too."""

    @property
    def url(self) -> str:
        return f"spark://{self.network.address(1)}:{self.ports[0]}"

    @property
    def workers(self) -> list[Daemon]:
        return self.daemons[1:]

    def start(self) -> None:
        """Start the cluster and return when the master knows both workers."""
        *exports, master, worker = _documented()[0]
        self._run(1, [*exports, master])
        for machine in (2, 3):
            self._run(machine, [*exports, worker])
        self._wait(f"http://{self.network.address(1)}:{self.ports[1]}/json/")

    def documented_archive(self, names: dict[str, str]) -> list[str]:
        """Return the arguments of `penstock archive` in docs/spark.md, with addresses of this network and `names`."""
        at = self.network.address
        addresses = {_DRIVER: at(0), f"{_MASTER}:{_PORT}": f"{at(1)}:{self.ports[0]}"}
        program, *arguments = shlex.split(_typed(_documented()[1][-1], addresses | names))
        assert program == "penstock"
        return arguments

    def _run(self, machine: int, script: list[str]) -> None:
        """Run a documented command, with addresses of this network, and nothing else of this process's environment."""
        work = self.folder / f"machine-{machine}"
        work.mkdir()
        at = self.network.address
        said = {_MASTER: at(1), _PORT: str(self.ports[0]), _WORKER: at(machine), _WORK: str(work)}
        typed = _typed("\n".join(script), said)
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        environment = kept | {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_MASTER_WEBUI_PORT": str(self.ports[1]),
            "SPARK_WORKER_WEBUI_PORT": str(self.ports[machine]),
            "SPARK_WORKER_CORES": "1",
            "SPARK_WORKER_MEMORY": "1g",
        }
        log = work / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*self.network.on(machine), "sh", "-c", typed],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.daemons.append(Daemon(process, log))

    def _wait(self, page: str) -> None:
        until = time.monotonic() + _START_SECONDS
        alive = 0
        while alive < len(self.workers):
            for daemon in self.daemons:
                assert daemon.process.poll() is None, daemon.log.read_text()
            assert time.monotonic() < until, [daemon.log.read_text()[-2000:] for daemon in self.daemons]
            with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=10) as answer:
                alive = answer.read().count(b'"ALIVE"') - 1  # the master is one
            time.sleep(0.2)

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with network(4) as made:
        running = Cluster(made, folder)
        try:
            running.start()
            yield running
        finally:
            running.stop()
