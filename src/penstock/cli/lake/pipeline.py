"""`penstock pipeline`: run, check and explain a pipeline: a file that describes steps over topics and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import fail, many, print_json, table
from penstock.cli.signals import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.file.model import Pipeline
    from penstock.spark.pipeline.run.progress import BatchReport
    from penstock.spark.pipeline.run.queries import ConsoleRows
    from penstock.spark.pipeline.run.run import Event, Result

app = typer.Typer(help="Pipelines of SQL and Python steps over topics and tables.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline: a TOML file, see docs/pipelines.md.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Read the file alone, and start no Spark.")]


@app.command("run")
@opt.bundled
def run(
    file: File,
    spark: opt.SparkOptions,
    once: Annotated[bool, typer.Option("--once", help="Take what is there now, then end.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for every batch.")] = False,
    json: opt.Json = False,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM, or with --once until all that is there is done.

    Every sink is a query with a checkpoint of its own: the next run goes on where this one ended, whatever ended it.
    A batch that is running when it is stopped is brought to its end; a second Ctrl-C does not wait for that. If a query
    fails, the others end their batch, and the exit code is 2.

    Examples:

    `penstock pipeline run revenue.toml`

    `penstock pipeline run revenue.toml --once --json`

    `penstock pipeline run revenue.toml --master spark://host:7077 --memory 4g`
    """
    from penstock.spark.pipeline.file.parsing import load
    from penstock.spark.pipeline.run.run import run as run_pipeline

    pipeline = load(file)
    _warn(pipeline)
    printer = _Printer(json=json, quiet=quiet)
    with _session(pipeline, spark) as session, stop_on_signals() as stop:
        results = run_pipeline(session, pipeline, once=once, say=printer, stop=stop.requested)
    printer.report(pipeline, results)
    raise typer.Exit(_exit_code(results, stop, json=json))


@app.command("validate")
@opt.bundled
def validate(file: File, spark: opt.SparkOptions, no_spark: NoSpark = False, json: opt.Json = False) -> None:
    """Check a pipeline without running it: its file, names, SQL, columns, functions and output modes.

    Nothing is read but schemas and the columns of tables and files. Exit code 1 if there is something to mend.

    Examples:

    `penstock pipeline validate revenue.toml`

    `penstock pipeline validate revenue.toml --no-spark --json`
    """
    pipeline, problems = _load(file)
    if pipeline is not None and not no_spark:
        from penstock.spark.pipeline.run.checks import problems as found_by_spark

        with _session(pipeline, spark, quick=True) as session:
            problems = found_by_spark(session, pipeline)
    warnings = list(pipeline.warnings) if pipeline is not None else []
    if json:
        print_json({"file": str(file), "valid": not problems, "problems": problems, "warnings": warnings})
    else:
        _print_findings(file, problems, warnings)
    if problems:
        raise typer.Exit(EXIT_FINDINGS)


@app.command("explain")
@opt.bundled
def explain(
    file: File,
    spark: opt.SparkOptions,
    no_spark: NoSpark = False,
    extended: Annotated[bool, typer.Option("--extended", help="Logical plans, too.")] = False,
    json: opt.Json = False,
) -> None:
    """Show a pipeline's steps, what they read and give, and the plan of every query.

    Values that came from the environment are not shown.

    Examples:

    `penstock pipeline explain revenue.toml`

    `penstock pipeline explain revenue.toml --no-spark`
    """
    from penstock.spark.pipeline.file.parsing import load
    from penstock.spark.pipeline.run.explain import graph_lines

    pipeline = load(file)
    lines = [pipeline.secrets.hide(line) for line in graph_lines(pipeline)]
    columns: dict[str, dict[str, str]] = {}
    plans: dict[str, str] = {}
    if not no_spark:
        columns, plans = _columns_and_plans(pipeline, spark, extended=extended)
    if json:
        print_json({"pipeline": pipeline.name, "graph": lines, "columns": columns, "plans": plans})
        return
    for line in (*lines, *_plan_lines(columns, plans)):
        typer.echo(line)


# sessions and signals


@contextmanager
def _session(pipeline: Pipeline, options: opt.SparkOptions, *, quick: bool = False) -> Iterator[SparkSession]:
    """Start a Spark session with the options of the command line; those not given there are taken from the file."""
    file = pipeline.spark
    merged = opt.SparkOptions(
        master=options.master or file.master,
        memory=options.memory or file.memory,
        conf=[*(f"{name}={value}" for name, value in file.config), *(options.conf or [])],
    )
    if sys.stderr.isatty():
        sys.stderr.write("penstock: starting Spark ...\n")
    session = merged.session(f"penstock pipeline {pipeline.name}", quick=quick)
    try:
        yield session
    finally:
        session.stop()


def _exit_code(results: list[Result], stop: StopRequest, *, json: bool) -> int:
    for result in results:
        if result.failure is not None:
            return fail(result.failure.error(f"query {result.query} failed"), json=json)
    return stop.exit_code


# output


class _Printer:
    """The printer of a run's progress: text on standard error, or JSON on standard output with `--json`."""

    def __init__(self, *, json: bool, quiet: bool) -> None:
        self._json = json
        self._quiet = quiet

    def __call__(self, event: Event) -> None:
        from penstock.spark.pipeline.run.progress import BatchReport
        from penstock.spark.pipeline.run.queries import ConsoleRows

        if isinstance(event, ConsoleRows):
            self._rows(event)
        elif self._quiet:
            return
        elif isinstance(event, BatchReport):
            self._line(_batch_text(event), event.as_dict())
        else:
            self._line(f"{event.query}: started", {"query": event.query, "checkpoint": event.checkpoint})

    def _line(self, text: str, facts: dict[str, Any]) -> None:
        if self._json:
            print_json(facts)
            sys.stdout.flush()
        else:
            sys.stderr.write(f"{text}\n")

    def _rows(self, shown: ConsoleRows) -> None:
        if self._json:
            rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
            print_json({"query": shown.query, "batch": shown.batch, "rows": rows, "more": shown.more})
        else:
            table(f"{shown.query}, batch {shown.batch}", shown.columns, shown.rows)
            if shown.more:
                typer.echo(f"only the first {many(len(shown.rows), 'row')}")
        sys.stdout.flush()

    def report(self, pipeline: Pipeline, results: list[Result]) -> None:
        if self._json:
            print_json({"pipeline": pipeline.name, "queries": [each.as_dict() for each in results]})
            return
        columns = ("query", "ended", "batches", "rows in", "rows out", "too late", "seconds", "lag")
        rows = [
            (
                each.query,
                each.state.value,
                each.batches,
                each.rows_in,
                each.rows_out,
                each.late,
                each.ms / 1000,
                each.lag,
            )
            for each in results
        ]
        table(f"pipeline {pipeline.name}", columns, rows)


def _batch_text(batch: BatchReport) -> str:
    out = "" if batch.rows_out is None else f", {batch.rows_out:,} out"
    late = f", {batch.late:,} too late" if batch.late else ""
    lag = "" if batch.lag is None else f", lag {batch.lag:,}"
    return f"{batch.query}: batch {batch.batch}: {batch.rows_in:,} in{out}{late}, {batch.ms / 1000:.2f} s{lag}"


def _warn(pipeline: Pipeline) -> None:
    for warning in pipeline.warnings:
        sys.stderr.write(f"penstock: warning: {warning}\n")


def _print_findings(file: Path, problems: list[str], warnings: list[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}")
    for problem in problems:
        typer.echo(problem)
    typer.echo(f"{file}: {many(len(problems), 'problem') if problems else 'valid'}")


# checks


def _load(file: Path) -> tuple[Pipeline | None, list[str]]:
    """Return the pipeline of a file; or None and the problems of the file."""
    from penstock.spark.pipeline.file.parsing import PipelineInvalid, load

    try:
        return load(file), []
    except PipelineInvalid as error:
        return None, list(error.problems)


def _columns_and_plans(
    pipeline: Pipeline, spark: opt.SparkOptions, *, extended: bool
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the columns of every named frame, and the plans of the queries, both by name. Raises `PipelineInvalid`."""
    from penstock.spark.pipeline.file.parsing import PipelineInvalid
    from penstock.spark.pipeline.run.explain import plans
    from penstock.spark.pipeline.run.frames import Frames

    with _session(pipeline, spark, quick=True) as session:
        frames = Frames(session).build(pipeline, unused=True)
        if frames.problems:
            raise PipelineInvalid(str(pipeline.file), [pipeline.secrets.hide(problem) for problem in frames.problems])
        columns = {name: dict(frame.dtypes) for name, frame in frames.by_name.items()}
        return columns, plans(pipeline, frames, extended=extended)


def _plan_lines(columns: dict[str, dict[str, str]], plans: dict[str, str]) -> Iterator[str]:
    for name, types in columns.items():
        yield f"\n{name}: {', '.join(f'{column} {kind}' for column, kind in types.items())}"
    for query, plan in plans.items():
        yield f"\nquery {query}\n{plan}"
