"""An archive of classes that the JVM has loaded and linked before. With it, a session starts in half the time.

Java 17 to 24 use a class data sharing archive, 25 and newer an AOT cache. Each is for one Java and one class path. The
JVM checks that by itself, and runs without the archive if it does not fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime.home import SparkHome
from penstock.spark.runtime.java import Java

TRAINING: Final = "PENSTOCK_SPARK_TRAINING"
"""Environment variable with the path of the archive that the JVM of this process shall write when it ends."""

_AOT_VERSION: Final = 25
_TRAINING_SECONDS: Final = 600.0
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=off")


def archive_path(home: SparkHome) -> Path:
    return home.root / "classes"


def options(java: Java, home: SparkHome) -> list[str]:
    """Return the JVM's options for the archive: to write it if the variable `TRAINING` is set, to use it if it exists,
    otherwise none."""
    output = os.environ.get(TRAINING)
    if output:
        return [_write_option(java, output), *_QUIET]
    archive = archive_path(home)
    return [*_read_options(java, archive), *_QUIET] if archive.exists() else []


def _write_option(java: Java, path: str) -> str:
    return f"-XX:AOTCacheOutput={path}" if java.major >= _AOT_VERSION else f"-XX:ArchiveClassesAtExit={path}"


def _read_options(java: Java, path: Path) -> list[str]:
    return [f"-XX:AOTCache={path}"] if java.major >= _AOT_VERSION else [f"-XX:SharedArchiveFile={path}"]


def can_train(java: Java) -> bool:
    """Return True if this Java can write an archive. Before version 25 it needs the archive that comes with a JDK,
    which the bundled Java does not have."""
    return java.major >= _AOT_VERSION or (java.home / "lib" / "server" / "classes.jsa").exists()


def train(java: Java, home: SparkHome) -> Path | None:
    """Run common operations with Spark once, in another process, and write the archive of their classes. That takes
    about half a minute. Return the archive's path, or None if this Java cannot write one.

    Raises `ServiceUnavailable` with Spark's message if the run fails, `subprocess.TimeoutExpired` after ten minutes.
    """
    if not can_train(java):
        return None
    with tempfile.TemporaryDirectory(dir=home.root, ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch, "classes")
        process = subprocess.run(  # noqa: S603 - this very Python
            [sys.executable, "-m", "penstock.spark.runtime.training", scratch],
            env={**os.environ, TRAINING: str(fresh)},
            capture_output=True,
            text=True,
            timeout=_TRAINING_SECONDS,
            check=False,
        )
        if process.returncode or not fresh.exists():
            raise ServiceUnavailable(f"Spark's classes could not be kept: {process.stderr.strip()[-2000:]}")
        fresh.rename(archive_path(home))
    return archive_path(home)
