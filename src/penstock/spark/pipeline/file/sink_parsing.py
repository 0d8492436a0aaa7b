"""`[sinks.NAME]`: topics, lake tables, files, or the console. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.errors import PenstockError
from penstock.spark.pipeline.file.locations import located
from penstock.spark.pipeline.file.model import (
    CONSOLE_ROWS_DEFAULT,
    Destination,
    Encode,
    Format,
    Mode,
    Output,
    Sink,
    ToConsole,
    ToFiles,
    ToTable,
    ToTopic,
)
from penstock.spark.pipeline.file.sections import Section
from penstock.spark.pipeline.file.source_parsing import Defaults, one_kind, parse_format, parse_table, parse_topic
from penstock.spark.sink.options import SinkOptions

_CONSOLE_ROWS_MAX: Final = 1000
_OUTPUTS: Final[dict[str, tuple[Output, ...]]] = {
    "topic": (Output.APPEND, Output.UPDATE),
    "table": (Output.APPEND,),
    "file": (Output.APPEND,),
    "console": tuple(Output),
}
"""The outputs that each destination allows. A message or row that was written stays, so only the console can show a
result that changes as a whole."""


def parse_sink(name: str, section: Section, defaults: Defaults) -> Sink | None:
    """Return the sink. If not exactly one key says its destination, note a problem and return None."""
    kind = one_kind(section, tuple(_KINDS))
    if kind is None:
        return None
    to = _KINDS[kind](section, defaults)
    sink = Sink(
        name=name,
        source=section.needed("from", "the step or source whose rows it takes"),
        to=to,
        output=_output(section, kind, defaults.mode),
        trigger_ms=_trigger_ms(section, defaults),
        checkpoint=f"{defaults.checkpoints.rstrip('/')}/{name}",
    )
    section.finish()
    return sink


def _output(section: Section, kind: str, mode: Mode) -> Output:
    if mode is Mode.BATCH and section.has("output"):
        section.note("output", 'a pipeline of mode "batch" gives each row once: leave it out')
    return section.word("output", Output, Output.APPEND, _OUTPUTS[kind])


def _trigger_ms(section: Section, defaults: Defaults) -> int:
    if defaults.mode is Mode.BATCH and section.has("trigger"):
        section.note("trigger", 'a pipeline of mode "batch" runs once: leave it out')
    return section.span_ms("trigger", defaults.trigger_ms)


def _topic(section: Section, defaults: Defaults) -> ToTopic:
    topic = parse_topic(section, "topic", section.needed("topic"))
    options = _writer_options(section, defaults) | section.options("options") | {"topic": topic}
    if not section.is_wrong:
        _check_options(section, options)
    return ToTopic(topic=topic, encode=section.word("encode", Encode, Encode.NONE), options=tuple(options.items()))


def _check_options(section: Section, options: dict[str, str]) -> None:
    """Note wrong options now, as the sink itself would when the pipeline starts."""
    try:
        SinkOptions.parse(options)
    except PenstockError as error:
        section.note("options", error.message)


def _writer_options(section: Section, defaults: Defaults) -> dict[str, str]:
    """Return the options of writing: through the broker if there is one, else straight into the data directory."""
    broker, path = section.text("broker"), section.text("path")
    if broker is not None and path is not None:
        section.note("broker", "broker and path are both there: messages go through a broker, or straight into a log")
    if path is not None:
        return {"path": located(defaults.directory, path)}
    if broker is not None or defaults.broker is not None:
        return {"broker": broker or defaults.broker or ""}
    if defaults.path is None:
        section.note(
            "broker", "missing: broker (host:port) or path (a data directory no broker owns), here or in [pipeline]"
        )
    return {"path": defaults.path or ""}


def _table(section: Section, defaults: Defaults) -> ToTable:
    return ToTable(table=parse_table(section, defaults), partition_by=section.text("partition_by"))


def _files(section: Section, defaults: Defaults) -> ToFiles:
    path = located(defaults.directory, section.needed("file"))
    return ToFiles(
        path=path,
        format=parse_format(section, path, Format.PARQUET),
        partition_by=section.texts("partition_by"),
        options=tuple(section.options("options").items()),
    )


def _console(section: Section, defaults: Defaults) -> ToConsole:  # noqa: ARG001 - one signature for all kinds
    if not section.flag("console", default=True):
        section.note("console", "true, or leave the sink out")
    return ToConsole(section.number("rows", CONSOLE_ROWS_DEFAULT, least=1, most=_CONSOLE_ROWS_MAX))


_KINDS: Final[dict[str, Callable[[Section, Defaults], Destination]]] = {
    "topic": _topic,
    "table": _table,
    "file": _files,
    "console": _console,
}
