"""The choice of the Java that runs Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime import java


def installed(home: Path, version: str, *, release: bool = True) -> Path:
    """Make a directory that looks like a Java of that version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21), ("unknown", 0), ("", 0)]
)
def test_the_major_version_is_read(version: str, major: int) -> None:
    assert java.major_of(version) == major


def test_java_home_is_preferred(tmp_path: Path) -> None:
    first, second = installed(tmp_path / "one", "21.0.1"), installed(tmp_path / "two", "25.0.1")
    found = java.find({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version, found.origin, found.major) == (first, "21.0.1", "JAVA_HOME", 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = installed(tmp_path / "old", "11.0.2"), installed(tmp_path / "new", "17.0.9")
    found = java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.origin) == (new, "PATH")


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = installed(tmp_path / "java", "17.0.3", release=False)
    assert java.find({"JAVA_HOME": str(home), "PATH": ""}).version == "17.0.3"


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = installed(tmp_path / "java", "17.0.3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find({"PATH": str(tmp_path / "bin")}).home == home


def test_without_any_the_bundled_one_is_taken() -> None:
    found = java.find({"PATH": ""})
    assert found.bundled
    assert found.major >= java.VERSION_MIN


def test_what_was_found_is_said_when_nothing_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    old = installed(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ServiceUnavailable, match=r"JAVA_HOME has Java 1\.8\.0_402 in .*; set JAVA_HOME|pip install"):
        java.find({"JAVA_HOME": str(old), "PATH": ""})
