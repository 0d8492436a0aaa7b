"""A pipeline as values: sources, steps and sinks. Spark is not imported here, and no file is opened.

A `Pipeline` guarantees that its names are unique, that every name it uses exists, and that each step comes behind its
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from penstock.spark.pipeline.file.environment import Secrets

Options = tuple[tuple[str, str], ...]
"""Options of a Spark source or sink, by name."""

TRIGGER_MS_DEFAULT: Final = 1000
"""The default time between the beginnings of batches. A query that looks for data every ten milliseconds takes a tenth
of a core, even without data; once a second takes hardly any."""
CONSOLE_ROWS_DEFAULT: Final = 20


class Mode(StrEnum):
    """The mode of a pipeline: continuous queries, or one pass over the present data."""

    STREAM = "stream"
    BATCH = "batch"


class Output(StrEnum):
    """The rows that a batch writes: rows that are final (`append`), rows that changed (`update`), or the whole result
    (`complete`)."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class Format(StrEnum):
    """A format of files."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    ORC = "orc"


class TableKind(StrEnum):
    """A format of lake tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class Encode(StrEnum):
    """The way a row becomes the value of a message: the row has a column `value` (`none`), or other columns become
    JSON."""

    NONE = "none"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Watermark:
    """A bound on lateness: rows whose `column` lies more than `delay_ms` behind the latest seen may be dropped."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAt:
    """A lake table: its kind, its warehouse, its name, and the options to reach both."""

    kind: TableKind
    warehouse: str
    name: str
    storage: Options = field(default=(), repr=False)
    catalog: Options = field(default=(), repr=False)


# ---- sources


@dataclass(frozen=True, slots=True)
class FromTopics:
    """Topics as a source. `what` names them for people, as names or a pattern; `options` are all options of the
    penstock source."""

    what: str
    options: Options = field(repr=False)


@dataclass(frozen=True, slots=True)
class FromTable:
    table: TableAt


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFormat:
    """Any source that Spark reads by a format's name: files, where there is a path."""

    format: str
    path: str | None = None
    schema: str | None = None
    options: Options = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    name: str
    of: FromTopics | FromTable | FromFormat
    streaming: bool
    watermark: Watermark | None = None


# ---- steps


@dataclass(frozen=True, slots=True)
class Sql:
    text: str


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function that makes a DataFrame from DataFrames. `place` is the name of its module, or the path of its
    file."""

    place: str
    name: str

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    by: Sql | Function
    inputs: tuple[str, ...]
    watermark: Watermark | None = None


# ---- sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopic:
    """A topic as destination; `options` are all those of the penstock sink."""

    topic: str
    encode: Encode
    options: Options = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTable:
    table: TableAt
    partition_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFiles:
    path: str
    format: Format
    partition_by: tuple[str, ...] = ()
    options: Options = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ToConsole:
    rows: int = CONSOLE_ROWS_DEFAULT


Destination = ToTopic | ToTable | ToFiles | ToConsole


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A sink: the source or step whose rows it takes, and their destination. Each sink is run as one query.
    `checkpoint` is the directory of that query alone."""

    name: str
    source: str
    to: Destination
    output: Output = Output.APPEND
    trigger_ms: int = TRIGGER_MS_DEFAULT
    checkpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """Settings that the session is started with."""

    master: str | None = None
    memory: str | None = None
    config: Options = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A valid pipeline. Each of the `steps` comes behind its inputs. `warnings` are sentences for the user; the
    pipeline runs in spite of them."""

    name: str
    file: Path
    mode: Mode
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    checkpoints: str
    refresh_ms: int | None = None
    """The interval at which sources that are no streams are read anew; None: only when the pipeline starts."""
    spark: Spark = Spark()
    warnings: tuple[str, ...] = ()
    secrets: Secrets = field(default=Secrets(), repr=False)

    @property
    def directory(self) -> Path:
        """The directory that relative paths of the file begin at."""
        return self.file.parent

    def query_name(self, sink: Sink) -> str:
        return f"{self.name}.{sink.name}"
