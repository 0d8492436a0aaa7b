"""A home directory for Spark in the user's cache. It has links to the installed package, and if needed a script that
starts Java without an option that this Java does not know.

The package's own directory is not used as the home for two reasons. Its Python workers would import PySpark from a zip
without compiled modules, which takes 0.7 s each; this home has no zip, so they import the installed package. And it may
not be writable. If the user has set `SPARK_HOME`, that Spark is used unchanged.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime.java import Java

ENVIRONMENT: Final = "PENSTOCK_SPARK_CACHE"
_LINKED: Final = ("bin", "jars", "sbin")
_FORMAT: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkHome:
    """The absolute paths of a home directory for Spark."""

    root: Path
    spark: Path
    """Directory for the environment variable SPARK_HOME."""
    java: Path
    """Directory for the environment variable JAVA_HOME."""

    @property
    def jars(self) -> Path:
        return self.spark / "jars"


def cache_directory() -> Path:
    if directory := os.environ.get(ENVIRONMENT):
        return Path(directory).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "penstock" / "spark"


def package() -> Path:
    """Return the directory of the installed package `pyspark`. Raises `ServiceUnavailable` if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceUnavailable("Spark is not installed: pip install 'penstock[spark]'")
    return Path(spec.origin).parent


def prepare(java: Java) -> SparkHome:
    """Return the home for the installed Spark and this Java. Create it if missing, as a whole or not at all. Raises
    `ServiceUnavailable` if Spark is not installed or the cache directory is not writable."""
    source = package()
    root = cache_directory() / _key(source, java)
    if not root.exists():
        _make(root, source, java)
    return SparkHome(root=root, spark=root / "home", java=root / "java" if java.bundled else java.home)


def _key(source: Path, java: Java) -> str:
    identity = "\n".join((_FORMAT, str(source), str(java.home), java.version))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _make(root: Path, source: Path, java: Java) -> None:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, ignore_cleanup_errors=True) as scratch:
            fresh = Path(scratch, "root")
            _link_spark(fresh / "home", source)
            _wrap_java(fresh / "java", java)
            fresh.rename(root)
    except OSError as error:
        if root.exists():  # another process created it first
            return
        raise ServiceUnavailable(
            f"Spark's home cannot be made in {root.parent}: {error.strerror}; set {ENVIRONMENT} to a directory"
            " that can be written to"
        ) from None


def _link_spark(home: Path, source: Path) -> None:
    home.mkdir(parents=True)
    for name in _LINKED:
        (home / name).symlink_to(source / name)


def _wrap_java(home: Path, java: Java) -> None:
    """Create a Java home in `home` with a script `bin/java`, which runs the given Java without the option for the
    vector module. The bundled Java does not have that module, and would refuse to start."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        'for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    script.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{java.version}"\n')


def scala_version(home: SparkHome) -> str:
    """Return the version of Scala, `2.13` for example, from the name of a jar such as `spark-core_2.13-4.3.0.jar`."""
    core = next(home.jars.glob("spark-core_*.jar"))
    return core.name.removeprefix("spark-core_").partition("-")[0]
