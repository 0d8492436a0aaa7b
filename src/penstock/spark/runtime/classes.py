"""An archive of the JVM's loaded and linked classes: with it, a session starts in half the time.

Java 17 to 24 use an archive of class data, 25 and newer an AOT cache. Either belongs to one Java and one class path;
the JVM checks that by itself, and runs without it if it does not fit.
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
"""Environment variable: the archive that the JVM of this process writes when it ends."""

_AOT_VERSION: Final = 25
_TRAINING_SECONDS: Final = 600.0
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=off")


def archive_path(home: SparkHome) -> Path:
    return home.root / "classes"


def options(java: Java, home: SparkHome) -> list[str]:
    """Return the JVM's options: to write an archive, to use the existing one, or none."""
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
    """Tell whether this Java can write an archive: before 25 it builds on the one that a JDK ships; the bundled Java
    has none."""
    return java.major >= _AOT_VERSION or (java.home / "lib" / "server" / "classes.jsa").exists()


def train(java: Java, home: SparkHome) -> Path | None:
    """Run Spark once over common operations and keep its classes; about half a minute. Returns None if this Java
    cannot.

    Raises `ServiceUnavailable` with Spark's message if it fails.
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
