"""Lifetimes: at the end of the demo its directory is emptied and its broker stopped, unless they are to be kept."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.demo.base.interrupts import deferred_interrupts
from penstock.demo.broker.process import BrokerProcess

RESULTS: Final = ("revenue.png", "audit.html")
"""Files that stay in any case: a picture and a page, some hundred kilobytes."""
_TALKATIVE: Final = ("penstock.client", "py4j")


@contextmanager
def demo_directory(given: Path | None, *, keep: bool) -> Iterator[Path]:
    """Create the directory of the demo; `given` is its path, None for a temporary one. At the end only `RESULTS` stay
    in it.

    With `keep` everything stays. After an error nothing stays unless `keep`; after an interruption nothing stays at
    all. Raises `InvalidRequest` for an existing path, unless it is an empty directory.
    """
    was_there = given is not None and given.exists()
    with deferred_interrupts():
        directory = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if given is None else _create(given)
    try:
        yield directory
    except BaseException as error:
        if not (keep and isinstance(error, Exception)):
            with deferred_interrupts():
                _remove(directory, itself=not was_there)
        raise
    if not keep:
        with deferred_interrupts():
            _remove(directory, itself=False, but=RESULTS)


def _create(given: Path) -> Path:
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise InvalidRequest(f"--dir {given}: it is there already; name a new directory, or an empty one")
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--dir {given}: it cannot be made: {error.strerror}") from None
    return given.absolute()


def _remove(directory: Path, *, itself: bool, but: tuple[str, ...] = ()) -> None:
    for each in directory.iterdir():
        if each.name in but:
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
    if itself:
        directory.rmdir()


@contextmanager
def broker_lifetime(broker: BrokerProcess, *, keep: bool) -> Iterator[None]:
    """Stop the broker when the context ends: in order, or by SIGKILL after a failure. With `keep` it goes on if nothing
    failed."""
    try:
        yield
    except BaseException:
        with deferred_interrupts():
            broker.kill()
        raise
    with deferred_interrupts():
        if keep:
            broker.leave()
        else:
            broker.stop()


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence warnings of broken connections, to the broker and to the JVM: they are part of the story."""
    before = {name: logging.getLogger(name).level for name in _TALKATIVE}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
