"""The columns of a published DataFrame: checks their names, types and values, splits rows by topic and producer, and
compares repeated rows with stored ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.produce.receipts import Receipt
from penstock.core.errors import InvalidRequest, PayloadTooLarge, PenstockError, TopicNotSupported
from penstock.core.names import TopicName
from penstock.spark.sink.options import RowNumbers, SinkOptions

if TYPE_CHECKING:
    from penstock.client.consume.messages import StreamMessage
    from penstock.client.sync import Client

_LOG: Final = logging.getLogger(__name__)
_SECONDS: Final = 10.0


def check_same_row(
    client: Client, topic: str, partitions: int, rows: pa.RecordBatch, outcomes: list[Receipt | PenstockError]
) -> None:
    """Check that a repeated task sends the same rows as before.

    `outcomes` are the broker's answers to `rows`, in order. Of the rows that the broker had stored before under the
    same numbers, the last one is compared with the stored message by payload and key. Raises `InvalidRequest` if they
    differ: the query gives its rows in another order. If there is no such row, or the message cannot be read, nothing
    is compared.
    """
    known = [(row, each) for row, each in enumerate(outcomes) if isinstance(each, Receipt) and each.duplicate]
    if not known:
        return
    row, receipt = known[-1]
    stored = _stored_message(client, topic, partitions, receipt)
    if stored is not None and (stored.payload, stored.key) != (
        _cell_bytes(rows, "value", row),
        _cell_bytes(rows, "key", row),
    ):
        raise InvalidRequest(
            f"{topic}, partition {receipt.partition}, offset {receipt.offset}: the row that was stored there under this"
            " number is another one, so the query gives its rows in another order when it is repeated; nothing was"
            " added. Start it with order=content, which numbers rows by what is in them, or with staging=DIRECTORY",
            option="order",
        )


def _stored_message(client: Client, topic: str, partitions: int, receipt: Receipt) -> StreamMessage[Any] | None:
    """Return the message at the receipt's offset; None if it is gone or cannot be read now."""
    start: dict[str, Any] = dict.fromkeys(map(str, range(partitions)), "latest")
    start[str(receipt.partition)] = receipt.offset
    try:
        with client.consumer(topic, start=start, window=1) as reader:
            message = reader.receive(timeout=_SECONDS)
    except (PenstockError, TimeoutError) as error:
        _LOG.warning("%s: a row that was stored before could not be compared: %s", topic, error)
        return None
    place = None if message is None else (message.partition, message.offset)
    return message if place == (receipt.partition, receipt.offset) else None


def _cell_bytes(rows: pa.RecordBatch, name: str, row: int) -> bytes | None:
    if name not in rows.schema.names:
        return None
    found = rows.column(name)[row].as_py()
    return found.encode() if isinstance(found, str) else found


_TEXT: Final = ("string",)
_BYTES: Final = ("binary", "string")
_WHOLE: Final = ("bigint", "int", "smallint", "tinyint")
_PAIRS: Final = ("map<string,string>",)

ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "type": _TEXT,
    "attributes": _PAIRS,
    "schema_id": _WHOLE,
    "schema_version": _WHOLE,
    "topic": _TEXT,
    "partition": _WHOLE,
}
NUMBERED: Final[Mapping[str, tuple[str, ...]]] = {"producer_name": _TEXT, "request_id": _WHOLE}
"""Columns accepted in addition with `numbers=columns`."""

IGNORED: Final = ("offset", "timestamp", "id", "producer_id", "producer_name", "request_id")
"""Columns of the source that the sink ignores, since the log gives each message new values. So rows that were read from
a topic can be written without dropping columns."""

MESSAGE: Final = ("value", "key", "type", "attributes", "schema_id", "schema_version")
"""The columns that a message consists of."""


def check_kinds(kinds: Mapping[str, str], options: SinkOptions) -> None:
    """Check the columns of a DataFrame. `kinds` maps each name to the type as Spark writes it, such as `bigint`.

    Raises `InvalidRequest` for a column that is unknown, has a wrong type, or is missing.
    """
    taken = _accepted(options)
    for name, kind in kinds.items():
        if name not in taken:
            _check_ignored(name, taken)
        elif kind.replace(" ", "") not in taken[name]:
            raise InvalidRequest(
                f"column {name!r} is {kind}, and the sink takes {' or '.join(taken[name])}: cast it", column=name
            )
    _check_present(kinds, options)


def _accepted(options: SinkOptions) -> dict[str, tuple[str, ...]]:
    numbered = NUMBERED if options.numbers is RowNumbers.COLUMNS else {}
    return {**ACCEPTED, **numbered}


def _check_ignored(name: str, taken: Mapping[str, object]) -> None:
    if name not in IGNORED:
        raise InvalidRequest(
            f"the sink has no column {name!r}: it takes {', '.join(taken)}; leave out the others with select or drop",
            column=name,
        )


def _check_present(kinds: Mapping[str, str], options: SinkOptions) -> None:
    if "value" not in kinds:
        raise InvalidRequest("the column 'value' is missing: it has the payloads, binary or string", column="value")
    if "topic" not in kinds and options.topic is None:
        raise InvalidRequest(
            "no topic is given: set the option topic, or have a column 'topic' that names it row by row", column="topic"
        )
    if "partition" in kinds and options.path is None:
        raise InvalidRequest(
            "a broker chooses the partition by the key: drop the column 'partition', or write with path",
            column="partition",
        )
    if options.numbers is RowNumbers.COLUMNS:
        for name in NUMBERED:
            if name not in kinds:
                raise InvalidRequest(f"numbers=columns needs the column {name!r}", column=name)


def accepted_columns(batch: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    """Return the batch with the columns that the sink uses."""
    names = [name for name in batch.schema.names if name in _accepted(options)]
    if options.topic is not None and "topic" in names:
        names.remove("topic")
    return batch.select(names)


def check_values(batch: pa.RecordBatch, before: int) -> None:
    """Raise `InvalidRequest` for the first row whose value is null. `before` is the number of rows of the task in
    earlier batches: the error counts rows from the task's first."""
    values = batch.column("value")
    if values.null_count:
        row = before + int(pc.index(pc.is_null(values), value=True).as_py())
        raise InvalidRequest(
            f"column 'value' is null in row {row} of its task: a message has a payload, which may be empty; filter such"
            " rows out, or coalesce(value, '')",
            column="value",
            row=row,
        )


def check_sizes(batch: pa.RecordBatch, before: int, *, topic: str, bytes_max: int) -> None:
    """Raise `PayloadTooLarge` for the first row whose payload exceeds `bytes_max`. `before` is the number of rows of
    the task in earlier batches: the error counts rows from the task's first."""
    sizes = pc.binary_length(batch.column("value"))
    largest = pc.max(sizes).as_py()
    if largest is not None and largest > bytes_max:
        row = before + int(pc.index(pc.greater(sizes, bytes_max), value=True).as_py())
        raise PayloadTooLarge(
            f"row {row} of its task: a payload of {topic} has at most {bytes_max} bytes, not {largest}",
            row=row,
            limit=bytes_max,
            topic=topic,
        )


def by_topic(batch: pa.RecordBatch, topic: str | None, before: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic with its rows, in order and without the column `topic`.

    With the argument `topic`, all rows are its rows. Otherwise the column names the topic of each row; raises
    `InvalidRequest` if it is missing or null, and `TopicNotSupported` for a text that is no topic's name. `before` is
    the number of rows of the task in earlier batches, for the row's number in the error.
    """
    if topic is not None:
        yield topic, batch
        return
    if "topic" not in batch.schema.names:
        raise InvalidRequest(f"row {before} names no topic, and none is given for all of them", column="topic")
    names = batch.column("topic")
    if names.null_count:
        row = before + int(pc.index(pc.is_null(names), value=True).as_py())
        raise InvalidRequest(f"column 'topic' is null in row {row} of its task, and no option topic is given", row=row)
    for parsed, rows in _group_rows(names, _topic_name):
        yield parsed, without(_take_rows(batch, rows), "topic")


def by_producer(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each producer that the column `producer_name` has, with its rows, in order and without that column.

    Raises `InvalidRequest` if a row lacks its producer or its number.
    """
    for name in NUMBERED:
        if batch.column(name).null_count:
            raise InvalidRequest(f"column {name!r} is null in some row: numbers=columns needs it in all", column=name)
    for name, rows in _group_rows(batch.column("producer_name"), _producer_name):
        yield name, without(_take_rows(batch, rows), "producer_name")


def _take_rows(batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    return batch if rows is None else batch.take(rows)


def _group_rows(column: pa.Array, read: Any) -> Iterator[tuple[str, Any]]:
    """Yield each distinct value of a column, converted by `read`, with the row numbers that have it.

    If all rows have the same value, None stands for their numbers.
    """
    encoded = column.dictionary_encode()
    values = [read(value) for value in encoded.dictionary.to_pylist()]
    if len(set(values)) == 1:
        yield values[0], None
        return
    groups = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.array([groups[value] for value in values])[encoded.indices.to_numpy()]
    for value, number in groups.items():
        yield value, pa.array(np.flatnonzero(codes == number))


def _topic_name(text: str) -> str:
    try:
        return str(TopicName.parse(text))
    except TopicNotSupported as error:
        raise TopicNotSupported(f"column 'topic': {error.message}", topic=text) from None


def _producer_name(text: str) -> str:
    if not text:
        raise InvalidRequest("column 'producer_name' is empty in some row: numbers=columns needs it in all")
    return text


def without(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    return batch.select([each for each in batch.schema.names if each != name])
