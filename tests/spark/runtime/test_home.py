"""A home for Spark, and the Java in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime import classes, home, java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(home.ENVIRONMENT, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bundled() -> java.Java:
    return next(found for found in java.candidates({"PATH": ""}) if found.bundled)


def test_it_has_the_jars_and_no_zip_of_python(cache: Path, bundled: java.Java) -> None:
    place = home.prepare(bundled)
    assert place.root.parent == cache
    assert list(place.jars.glob("spark-core_*.jar"))
    assert not (place.spark / "python").exists()


def test_it_is_made_once(cache: Path, bundled: java.Java) -> None:
    before = home.prepare(bundled)
    (before.root / "mark").touch()
    assert (home.prepare(bundled).root / "mark").exists()
    assert [entry.name for entry in cache.iterdir()] == [before.root.name]


def test_the_bundled_java_takes_the_option_it_has_no_module_for(cache: Path, bundled: java.Java) -> None:
    program = home.prepare(bundled).java / "bin" / "java"
    given = [str(program), "--add-modules=jdk.incubator.vector", "-Dname=a value", "-version"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert bundled.version.split("+")[0] in done.stderr


def test_a_java_of_the_machine_is_used_as_it_is(cache: Path, tmp_path: Path) -> None:
    own = java.Java(home=tmp_path / "own", version="17.0.1", origin="PATH")
    assert home.prepare(own).java == own.home


def test_another_java_has_another_home(cache: Path, tmp_path: Path, bundled: java.Java) -> None:
    own = java.Java(home=tmp_path / "own", version="17.0.1", origin="PATH")
    assert home.prepare(own).root != home.prepare(bundled).root


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled: java.Java
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(home.ENVIRONMENT, str(tmp_path / "file" / "cache"))
    with pytest.raises(ServiceUnavailable, match=r"set PENSTOCK_SPARK_CACHE"):
        home.prepare(bundled)


def test_kept_classes_are_used_where_there_are_any(cache: Path, bundled: java.Java) -> None:
    place = home.prepare(bundled)
    assert classes.options(bundled, place) == []
    classes.archive_path(place).touch()
    assert str(classes.archive_path(place)) in classes.options(bundled, place)[0]
