"""Helpers for commands that run Spark jobs over logs: parsing topics, running a job, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli import options as opt
from penstock.cli.output import console
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Topics = Annotated[list[str] | None, typer.Argument(help="Topics. Default: all.")]
ReportStage = Callable[[str, int, int], None]
_Result = TypeVar("_Result")


def parse_topics(topics: Sequence[str] | None) -> tuple[TopicName, ...]:
    return tuple(TopicName.parse(topic) for topic in topics or ())


@contextmanager
def naming_loss_option(option: str) -> Iterator[None]:
    """In errors about lost messages, name `option` of the command in place of the option of Spark's data source."""
    try:
        yield
    except PenstockError as error:
        from penstock.spark.scan.slice_reader import READ_ON

        raise type(error)(error.message.replace(READ_ON, f"give {option}"), **error.details) from None


def run_job(spark: opt.SparkOptions, name: str, job: Callable[[SparkSession, ReportStage], _Result]) -> _Result:
    """Run a job with a Spark session of its own, show its progress on standard error, and return its result.

    The job runs in another thread. Ctrl-C then interrupts this thread, which only waits, and not a call into the JVM,
    which could not be interrupted cleanly. The Spark job is cancelled and the session closed.
    """
    with _stage_progress() as report:
        session = spark.session(name)
        try:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(job, session, report).result()
        finally:
            session.stop()


@contextmanager
def _stage_progress() -> Iterator[ReportStage]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("starting Spark", total=None)

        def report(what: str, done: int, count: int) -> None:
            bar.update(task, description=what, completed=done, total=count)

        yield report


def write_file(path: Path, text: str) -> None:
    """Write a text file. Raises `InvalidRequest` if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from None
