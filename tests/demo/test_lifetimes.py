"""Directories and signals: what the demo leaves behind, and when Ctrl-C is heard."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.demo.base.interrupts import deferred_interrupts
from penstock.demo.broker.lifetimes import demo_directory


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary directories."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def fill(place: Path) -> None:
    (place / "data" / "topics").mkdir(parents=True)
    (place / "data" / "topics" / "segment").write_bytes(b"x")
    for name in ("broker.log", "revenue.png", "audit.html"):
        (place / name).write_text("x")


def names(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir())


def test_only_the_results_are_left(scratch: Path) -> None:
    with demo_directory(None, keep=False) as place:
        fill(place)
    assert place.parent == scratch
    assert names(place) == ["audit.html", "revenue.png"]


def test_everything_is_left_where_it_is_to_be_kept(tmp_path: Path) -> None:
    with demo_directory(tmp_path / "new" / "kept", keep=True) as place:
        fill(place)
    assert names(tmp_path / "new" / "kept") == ["audit.html", "broker.log", "data", "revenue.png"]


def end(given: Path | None, error: BaseException, *, keep: bool) -> None:
    """A demo that comes so far and no further."""
    with demo_directory(given, keep=keep) as place:
        fill(place)
        raise error


@pytest.mark.parametrize("error", [StorageFailed("over"), KeyboardInterrupt(), SystemExit()])
def test_a_failure_and_an_interruption_leave_nothing(scratch: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        end(None, error, keep=False)
    assert names(scratch) == []


def test_a_failure_leaves_what_is_to_be_kept_and_an_interruption_does_not(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        end(tmp_path / "one", StorageFailed("over"), keep=True)
    with pytest.raises(KeyboardInterrupt):
        end(tmp_path / "two", KeyboardInterrupt(), keep=True)
    assert names(tmp_path) == ["one"]


def test_a_directory_that_was_there_is_emptied_and_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        end(tmp_path, KeyboardInterrupt(), keep=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["a file", "a directory with something in it", "below a file"])
def test_a_directory_is_new_or_empty(tmp_path: Path, kind: str) -> None:
    mine = tmp_path / "file"
    mine.write_text("mine")
    given = {"a file": mine, "a directory with something in it": tmp_path, "below a file": mine / "below"}[kind]
    with pytest.raises(InvalidRequest, match="--dir"), demo_directory(given, keep=False):
        pytest.fail("it was taken")
    assert mine.read_text() == "mine"


@pytest.fixture
def python_hears() -> Iterator[None]:
    """Ctrl-C means what it means to Python: a Spark that was started in this process before has changed that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_hears")
def test_a_signal_waits_until_it_may_come() -> None:
    reached = []

    def work() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end"]


def test_without_a_signal_everything_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is before
