"""What this machine has of what Penstock needs: looked at, not changed."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from penstock import __version__
from penstock.core.errors import PenstockError

_PYTHON_MIN: Final = (3, 11)
_FREE_BYTES_MIN: Final = 1 << 30
_MEMORY_BYTES_MIN: Final = 2 << 30


class State(StrEnum):
    OK = "ok"
    MISSING = "missing"
    """Something does not work without it; what it says tells what, and what to do."""
    NOTE = "note"
    """Worth knowing, and nothing to mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    state: State
    text: str


def examine(data: Path, ports: dict[str, int | None], *, start_spark: bool = False) -> Iterator[Finding]:
    """Every finding, as it is made. With `start_spark`, Spark is started for a moment."""
    yield Finding("penstock", State.OK, f"{__version__} in {Path(__file__).parent}")
    yield _python()
    yield from _machine()
    yield _kernels()
    yield _java()
    yield _spark()
    yield _lake()
    yield _disk(data)
    yield from (_port(name, number) for name, number in ports.items())
    if start_spark:
        yield _started_spark()


def _python() -> Finding:
    state = State.OK if sys.version_info[:2] >= _PYTHON_MIN else State.MISSING
    return Finding("python", state, f"{platform.python_version()}, {sys.executable}")


def _machine() -> Iterator[Finding]:
    yield Finding("processor", State.OK, f"{os.cpu_count()} cores, {platform.machine()}")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    state = State.OK if total >= _MEMORY_BYTES_MIN else State.NOTE
    few = "" if state is State.OK else ": Spark wants 2 GiB and more"
    yield Finding("memory", state, f"{total / (1 << 30):.1f} GiB{few}")


def _installed(packages: tuple[str, ...], extra: str) -> str | None:
    """The extra that would bring what is missing of these; None if nothing is."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return f"{', '.join(missing)} not installed: pip install 'penstock[{extra}]'" if missing else None


def _kernels() -> Finding:
    if (missing := _installed(("numba", "numpy", "pyarrow"), "stream")) is not None:
        return Finding("kernels", State.MISSING, missing)
    from penstock.record import kernel_cache

    place = kernel_cache.directory()
    if place is None:
        text = f"kept nowhere: every process compiles them; set {kernel_cache.ENVIRONMENT} to a directory"
        return Finding("kernels", State.NOTE, text)
    if not kernel_cache.is_complete():
        return Finding("kernels", State.NOTE, f"compiled at first use into {place}; `penstock warm` does it now")
    return Finding("kernels", State.OK, f"compiled, in {place}")


def _java() -> Finding:
    from penstock.spark.runtime import java

    try:
        found = java.find()
    except PenstockError as error:
        return Finding("java", State.MISSING, error.message)
    return Finding("java", State.OK, f"{found.version} from {found.origin}, {found.home}")


def _spark() -> Finding:
    if (missing := _installed(("pyspark",), "spark")) is not None:
        return Finding("spark", State.MISSING, missing)
    given = os.environ.get("SPARK_HOME")
    return Finding("spark", State.OK, f"{version('pyspark')}{f', SPARK_HOME={given}' if given else ''}")


def _lake() -> Finding:
    if (missing := _installed(("deltalake", "pyiceberg"), "spark")) is not None:
        return Finding("lakehouse", State.MISSING, missing)
    return Finding("lakehouse", State.OK, ", ".join(f"{name} {_version(name)}" for name in ("deltalake", "pyiceberg")))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"


def _disk(data: Path) -> Finding:
    place = next(each for each in (data.absolute(), *data.absolute().parents) if each.exists())
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK):
        return Finding("disk", State.MISSING, f"{place} cannot be written to: choose another directory with --data")
    state = State.OK if free >= _FREE_BYTES_MIN else State.NOTE
    return Finding("disk", state, f"{free / (1 << 30):.1f} GiB free in {place}")


def _port(name: str, number: int | None) -> Finding:
    if number is None:
        return Finding(f"{name} port", State.OK, "off")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            text = f"{number}: {error.strerror}; a broker that runs there is fine, a second one needs another"
            return Finding(f"{name} port", State.NOTE, text)
    return Finding(f"{name} port", State.OK, f"{number} is free")


def _started_spark() -> Finding:
    return _tried("spark starts", _count_with_spark)


def _tried(what: str, action: Callable[[], str]) -> Finding:
    try:
        return Finding(what, State.OK, action())
    except Exception as error:  # whatever it is, it is what was asked for
        return Finding(what, State.MISSING, str(error) or repr(error))


def _count_with_spark() -> str:
    from penstock.spark.runtime.session import session

    spark = session("doctor", quick=True)
    try:
        return f"and counts to {spark.range(10).count()} on Java {_java_of(spark)}"
    finally:
        spark.stop()


def _java_of(spark: object) -> str:
    context = spark.sparkContext  # type: ignore[attr-defined]
    return str(context._jvm.System.getProperty("java.version"))  # noqa: SLF001 - PySpark has no other way to ask
