"""`[sources.NAME]`: topics, lake tables, files, or any other source that Spark reads by a format's name. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import PenstockError, TopicNotSupported
from penstock.core.names import TopicName
from penstock.spark.files.location import TLS_OPTIONS
from penstock.spark.pipeline.file.locations import located
from penstock.spark.pipeline.file.model import (
    Format,
    FromFormat,
    FromTable,
    FromTopics,
    Mode,
    Options,
    Source,
    TableAt,
    TableKind,
    Watermark,
)
from penstock.spark.pipeline.file.sections import Section
from penstock.spark.source.options import ReadOptions

_FILE_FORMATS: Final = {f".{each.value}": each for each in Format} | {".jsonl": Format.JSON, ".txt": Format.TEXT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Settings of `[pipeline]` for all sources and sinks."""

    directory: Path
    mode: Mode = Mode.STREAM
    path: str | None = None
    url: str | None = None
    broker: str | None = None
    registry: str | None = None
    storage: Options = ()
    warehouse: str | None = None
    kind: TableKind = TableKind.DELTA
    catalog: Options = ()
    trigger_ms: int = 0
    refresh_ms: int | None = None
    checkpoints: str = ""

    @property
    def reach(self) -> dict[str, str]:
        """The options of the penstock source that say where topics and schemas are: `path`, `url`, `registry` and
        `storage.*`."""
        named = {"path": self.path, "url": self.url, "registry": self.registry}
        kept = {f"storage.{name}": value for name, value in self.storage}
        return {name: value for name, value in named.items() if value is not None} | kept


def parse_source(name: str, section: Section, defaults: Defaults) -> Source | None:
    """Return the source. If not exactly one key says its kind, or it cannot be a stream and should, note a problem and
    return None."""
    kind = one_kind(section, tuple(_KINDS))
    if kind is None:
        return None
    topics = kind in ("topic", "pattern")
    of = _KINDS[kind](section, defaults)
    streaming = section.word("read", Mode, _default_mode(defaults.mode, streams=topics)) is Mode.STREAM
    watermark = parse_watermark(section)
    section.finish()
    if streaming and not _can_stream(section, of, defaults):
        return None
    if isinstance(of, FromTopics):
        _check_options(section, of, streaming=streaming)
    return Source(name=name, of=of, streaming=streaming, watermark=watermark)


def one_kind(section: Section, kinds: tuple[str, ...]) -> str | None:
    """Return the only key of `kinds` that the section has. If it has none or several, note a problem and return None.

    `format` beside `file` does not count.
    """
    found = [kind for kind in kinds if section.has(kind)]
    if "file" in found and "format" in found:
        found.remove("format")
    if len(found) != 1:
        wanted = f"exactly one of {', '.join(kinds)} says what it is"
        section.note("", f"{wanted}; {' and '.join(found) + ' are there' if found else 'there is none'}")
        return None
    return found[0]


def _default_mode(mode: Mode, *, streams: bool) -> Mode:
    """Return how a source is read if it does not say: topics as the pipeline's mode wants, tables and files as a
    whole."""
    return mode if streams else Mode.BATCH


def _can_stream(section: Section, of: FromTopics | FromTable | FromFormat, defaults: Defaults) -> bool:
    before = len(section.problems)
    if defaults.mode is Mode.BATCH:
        section.note("read", 'a pipeline of mode "batch" has no streams: leave it out')
    elif isinstance(of, FromTable):
        section.note(
            "read", "a lake table is read as it is when a batch begins: leave it out; topics and files can be streams"
        )
    elif isinstance(of, FromFormat) and of.path is not None and of.schema is None:
        section.note(
            "schema", 'missing: files that are read as a stream need one, such as schema = "id long, name string"'
        )
    return len(section.problems) == before


def parse_watermark(section: Section) -> Watermark | None:
    """Parse `watermark = { column = "at", delay = "30m" }`; None if there is none."""
    given = section.section("watermark")
    if given is None:
        return None
    column = given.needed("column", "the time that rows are put in order by")
    if not given.has("delay"):
        given.note("delay", 'missing: how late a row may be, such as "30m"')
    delay_ms = given.span_ms("delay", 0)
    given.finish()
    return Watermark(column, delay_ms)


# ---- topics


def _topics(section: Section, defaults: Defaults) -> FromTopics:
    names = [parse_topic(section, "topic", name) for name in section.texts("topic")]
    pattern = section.text("pattern")
    options = _location_options(section, defaults) | section.options("options")
    decode = section.text("decode")
    if decode is not None:
        options["decode"] = decode
    if "subscription" in options and defaults.broker is not None:
        options.setdefault("broker", defaults.broker)
    if pattern is not None:
        options["subscribePattern"] = pattern
    else:
        options["subscribe"] = ",".join(names)
    if not {"startingOffsets", "startingTimestamp"}.intersection(options):
        options["startingOffsets"] = "earliest"
    return FromTopics(pattern or ", ".join(names), tuple(options.items()))


def _check_options(section: Section, of: FromTopics, *, streaming: bool) -> None:
    """Note wrong options now, as the source itself would when the pipeline starts."""
    if section.is_wrong:
        return
    try:
        ReadOptions.of(dict(of.options), streaming=streaming)
    except PenstockError as error:
        section.note("options", error.message)


def parse_topic(section: Section, key: str, text: str) -> str:
    """Return the full name of a topic. If the text is not a topic's name, note a problem and return the text."""
    try:
        return str(TopicName.parse(text))
    except TopicNotSupported as error:
        section.note(key, error.message)
        return text


def _location_options(section: Section, defaults: Defaults) -> dict[str, str]:
    """Return the options for the place of the topics; the source's own settings go before the pipeline's."""
    path, url = section.text("path"), section.text("url")
    given = {"path": path and located(defaults.directory, path), "url": url}
    own = {name: value for name, value in given.items() if value is not None}
    if len(own) == 2:
        section.note("path", "path and url are both there: a directory, or a broker's HTTP address")
    usual = {name: value for name, value in defaults.reach.items() if not own or name not in ("path", "url")}
    if not own and not {"path", "url"}.intersection(usual):
        section.note("path", "missing: path (a data directory) or url (a broker's HTTP address), here or in [pipeline]")
    return usual | own


# ---- tables and files


def _table(section: Section, defaults: Defaults) -> FromTable:
    return FromTable(parse_table(section, defaults))


def parse_table(section: Section, defaults: Defaults) -> TableAt:
    """Return the table that `table`, `kind`, `warehouse` and `catalog` describe. Problems are noted; missing texts are
    ""."""
    own = section.text("warehouse")
    warehouse = located(defaults.directory, own) if own else defaults.warehouse
    if warehouse is None:
        section.note("warehouse", "missing: the directory or address of the lake, here or in [pipeline]")
    return TableAt(
        kind=section.word("kind", TableKind, defaults.kind),
        warehouse=warehouse or "",
        name=section.needed("table"),
        storage=_lake_storage(warehouse or "", defaults.storage),
        catalog=defaults.catalog + tuple(section.options("catalog").items()),
    )


def _lake_storage(warehouse: str, storage: Options) -> Options:
    """Return the storage options for the lake: none if it is a directory, and never those for connecting to a
    broker."""
    return tuple(pair for pair in storage if "://" in warehouse and pair[0] not in TLS_OPTIONS)


def _file(section: Section, defaults: Defaults) -> FromFormat:
    path = located(defaults.directory, section.needed("file"))
    return FromFormat(
        format=parse_format(section, path).value,
        path=path,
        schema=section.text("schema"),
        options=tuple(section.options("options").items()),
    )


def parse_format(section: Section, path: str, usual: Format | None = None) -> Format:
    """Return the format that the key says, else that of the file name's suffix, else `usual`; a problem is noted
    without any."""
    ending = _FILE_FORMATS.get(Path(path).suffix, usual)
    if ending is None and not section.has("format"):
        section.note("format", f"missing: {', '.join(Format)}; it cannot be told from the name")
    return section.word("format", Format, ending or Format.PARQUET)


def _spark_format(section: Section, defaults: Defaults) -> FromFormat:  # noqa: ARG001 - one signature for all kinds
    return FromFormat(
        format=section.needed("format"),
        schema=section.text("schema"),
        options=tuple(section.options("options").items()),
    )


_KINDS: Final[dict[str, Callable[[Section, Defaults], FromTopics | FromTable | FromFormat]]] = {
    "topic": _topics,
    "pattern": _topics,
    "table": _table,
    "file": _file,
    "format": _spark_format,
}
