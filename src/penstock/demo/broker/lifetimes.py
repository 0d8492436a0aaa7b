"""What lives as long as the demo and no longer, unless it is asked to stay: its directory and its broker."""

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
"""What stays in any case: a picture and a page, some hundred kilobytes."""
_TALKATIVE: Final = ("penstock.client", "py4j")


@contextmanager
def demo_directory(given: Path | None, *, keep: bool) -> Iterator[Path]:
    """A directory for everything. When it is over only the results are left in it; with `keep`, all of it. After a
    failure, nothing is left unless it was to be kept; after an interruption, nothing at all.

    Raises `InvalidRequest` if what is given is there already, unless as an empty directory.
    """
    was_there = given is not None and given.exists()
    with deferred_interrupts():
        made = Path(tempfile.mkdtemp(prefix="penstock-demo-")) if given is None else _made(given)
    try:
        yield made
    except BaseException as error:
        if not (keep and isinstance(error, Exception)):
            with deferred_interrupts():
                _remove(made, itself=not was_there)
        raise
    if not keep:
        with deferred_interrupts():
            _remove(made, itself=False, but=RESULTS)


def _made(given: Path) -> Path:
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise InvalidRequest(f"--dir {given}: it is there already; name a new directory, or an empty one")
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--dir {given}: it cannot be made: {error.strerror}") from None
    return given.absolute()


def _remove(made: Path, *, itself: bool, but: tuple[str, ...] = ()) -> None:
    for each in made.iterdir():
        if each.name in but:
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)
    if itself:
        made.rmdir()


@contextmanager
def broker_lifetime(broker: BrokerProcess, *, keep: bool) -> Iterator[None]:
    """The broker is gone when this is over: stopped in order, or at once where something failed. With `keep` it stays,
    if nothing failed."""
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
    """That connections break, to the broker and to the JVM, is part of the story: nobody needs a warning for each."""
    before = {name: logging.getLogger(name).level for name in _TALKATIVE}
    for name in before:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
