"""A pipeline as values: what is read, what is made of it, where it goes. No Spark and no files come in here.

To hold a `Pipeline` is to know that its names are unique, that every name that is used is there, and that its steps are
in an order in which each comes behind what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from penstock.spark.pipeline.file.environment import Secrets

Options = tuple[tuple[str, str], ...]
"""Of a Spark source or sink, by name."""

TRIGGER_MS_DEFAULT: Final = 1000
"""An idle query that looks ten milliseconds after it last looked takes a tenth of a core; once a second, none."""
CONSOLE_ROWS_DEFAULT: Final = 20


class Mode(StrEnum):
    """Of a pipeline: queries that go on, or one pass over what is there."""

    STREAM = "stream"
    BATCH = "batch"


class Output(StrEnum):
    """What of a result a batch of a query gives: the rows that are final, those that changed, or all."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class Format(StrEnum):
    """Of files."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    ORC = "orc"


class TableKind(StrEnum):
    """Of a lake table."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


class Encode(StrEnum):
    """How the columns of a row become the value of a message."""

    NONE = "none"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Rows whose `column` lies more than `delay_ms` behind the latest that was seen are late, and may be dropped."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAt:
    """A lake table: its kind, the warehouse it lies in, its name, and how both are reached."""

    kind: TableKind
    warehouse: str
    name: str
    storage: Options = field(default=(), repr=False)
    catalog: Options = field(default=(), repr=False)


# sources


@dataclass(frozen=True, slots=True)
class FromTopics:
    """Records of topics; `options` are those of the penstock source, all of them."""

    what: str
    options: Options = field(repr=False)


@dataclass(frozen=True, slots=True)
class FromTable:
    table: TableAt


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFormat:
    """Whatever Spark reads under a name: files, where there is a path."""

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


# steps


@dataclass(frozen=True, slots=True)
class Sql:
    text: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module, or of a file, that makes a DataFrame of DataFrames."""

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


# sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopic:
    """`options` are those of the penstock sink, all of them."""

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
    """One query. `checkpoint` is its own directory; nobody else may have it."""

    name: str
    source: str
    to: Destination
    output: Output = Output.APPEND
    trigger_ms: int = TRIGGER_MS_DEFAULT
    checkpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """What the session is started with."""

    master: str | None = None
    memory: str | None = None
    config: Options = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """`steps` are in an order in which they can be made. `warnings` are sentences; none of them stops it."""

    name: str
    file: Path
    mode: Mode
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    checkpoints: str
    refresh_ms: int | None = None
    """How often what is no stream is read anew; None: when the pipeline starts."""
    spark: Spark = Spark()
    warnings: tuple[str, ...] = ()
    secrets: Secrets = field(default=Secrets(), repr=False)

    @property
    def directory(self) -> Path:
        """What relative paths of the file begin at."""
        return self.file.parent

    def query_name(self, sink: Sink) -> str:
        return f"{self.name}.{sink.name}"
