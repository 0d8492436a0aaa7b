"""The publisher: sends numbered rows through a broker in blocks, within a rate limit. A row that comes again is stored
once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from penstock.client.produce.receipts import Receipt
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError, SchemaRejected, TopicNotSupported
from penstock.spark.sink import columns
from penstock.spark.sink.columns import check_same_row
from penstock.spark.sink.identity import WriteCounts
from penstock.spark.sink.numbers import NUMBER, ResumeFilter, unconfirmed_max
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.routing import ProducerRows

if TYPE_CHECKING:
    from penstock.client.sync import Client, Producer, Sent


class RateLimit:
    """A limit of rows a second; without a rate, no limit."""

    def __init__(
        self,
        rows_per_second: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rows_per_second
        self._now = now
        self._sleep = sleep
        self._due: float | None = None

    @property
    def rows_max(self) -> int | None:
        """The rows to send at once, a tenth of a second's worth, so that a slow rate is smooth; None without a
        limit."""
        return None if self._rate is None else max(1, int(self._rate / 10))

    def take(self, rows: int) -> None:
        """Wait until `rows` more rows may be sent. Time without rows is not saved up for later."""
        if self._rate is None:
            return
        now = self._now()
        due = now if self._due is None else max(self._due, now)
        if due > now:
            self._sleep(due - now)
        self._due = due + rows / self._rate


_PIECES: Final = 4
"""The most blocks that wait for their confirmation: while the broker syncs one, the next are on the wire."""

_SEQUENCES_MAX: Final = 1_000
"""The most producers that one task may have: one for each topic, or for each producer that its rows name."""


class ProducerSequence:
    """A sender of one producer's rows to one topic, in order. It never has more unconfirmed rows than a repeated task
    sends again, so a repeated task sends every row that is in doubt."""

    def __init__(self, client: Client, producer: Producer[Any], topic: str, name: str, pace: RateLimit) -> None:
        self._client = client
        self._producer = producer
        self._topic = topic
        self._name = name
        self._pace = pace
        again = unconfirmed_max(producer.window)
        self._piece = min(max(1, again // _PIECES), pace.rows_max or again)
        self.last = producer.last_request_id
        """The highest number that the broker knew of this producer when the sequence was opened; 0 if it knew none."""

        self._resume_filter = ResumeFilter(self.last, again)
        self._sent: deque[tuple[Sent, int]] = deque()
        self._rows = 0
        self._stored_before = 0
        """Rows that were sent again and turned out to be stored."""

    @property
    def tally(self) -> WriteCounts:
        return WriteCounts(self._rows, self._resume_filter.skipped + self._stored_before)

    def write(self, batch: pa.RecordBatch, before: int) -> None:
        """Send numbered rows; they are certainly stored only when `finish` has returned.

        `before` is the number of rows of the task in earlier batches, for the row's number in an error. Raises
        `PayloadTooLarge`, and the broker's errors with the names of the topic and the producer.
        """
        columns.check_sizes(batch, before, topic=self._topic, bytes_max=self._producer.payload_bytes_max)
        self._rows += batch.num_rows
        for part in self._resume_filter.feed(batch):
            self._send_pieces(part)

    def finish(self) -> None:
        """Wait until everything is on disk."""
        for part in self._resume_filter.finish():
            self._send_pieces(part)
        while self._sent:
            self._confirm()

    def _send_pieces(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, self._piece):
            piece = batch.slice(start, self._piece)
            if piece.column(NUMBER)[0].as_py() <= self.last:
                self._send_again(piece)
            else:
                self._send(piece)

    def _send_again(self, piece: pa.RecordBatch) -> None:
        """Send rows that may be stored already, and wait for the answers.

        No further row is sent until these are stored and known to be the same as before; `InvalidRequest` if they are
        not.
        """
        with _naming_sequence(self):
            outcomes = self._producer.send_arrow(piece, numbered=True).outcomes()
            for outcome in outcomes:
                if isinstance(outcome, PenstockError):
                    raise outcome
        self._stored_before += sum(isinstance(each, Receipt) and each.duplicate for each in outcomes)
        check_same_row(self._client, self._topic, self._producer.partitions, piece, outcomes)

    def _send(self, piece: pa.RecordBatch) -> None:
        if len(self._sent) >= _PIECES:
            self._confirm()
        self._pace.take(piece.num_rows)
        with _naming_sequence(self):
            self._sent.append((self._producer.send_arrow(piece, numbered=True), piece.column(NUMBER)[0].as_py()))

    def _confirm(self) -> None:
        sent, first = self._sent.popleft()
        with _naming_sequence(self, first):
            sent.stored()

    def __str__(self) -> str:
        return f"{self._topic}, producer {self._name}"


class _naming_sequence:  # noqa: N801 - reads as a word in `with`
    """Raise an error of the broker or the client again, with the topic and the producer it is about."""

    def __init__(self, sequence: ProducerSequence, first: int | None = None) -> None:
        self._sequence = sequence
        self._first = first

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, NotOwner):
            raise NotOwner(
                f"{self._sequence}: another attempt of this task, or another run of this query, has taken over; this"
                " one stops, and what it has written is theirs to go on from",
                **error.details,
            ) from None
        if isinstance(error, SchemaRejected):
            first = "" if self._first is None else f", from number {self._first}"
            raise SchemaRejected(f"{self._sequence}{first}: {error.message}") from None
        if isinstance(error, PenstockError):
            raise type(error)(f"{self._sequence}: {error.message}", **error.details) from None


class Publisher:
    """The publisher of one task: a connection to the broker, and a sequence for each topic and producer. It connects
    when the first row comes."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._pace = RateLimit(options.rows_per_second)
        self._client: Client | None = None
        self._sequences: dict[tuple[str, str], ProducerSequence] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._client is not None:
            self._client.close()

    @property
    def sequences(self) -> dict[tuple[str, str], ProducerSequence]:
        """Producer sequences by topic and producer name."""
        return self._sequences

    @property
    def tally(self) -> WriteCounts:
        return sum((each.tally for each in self._sequences.values()), WriteCounts())

    def last(self, topic: str, producer: str) -> int:
        """Return the highest number that the broker knew of a producer when this task first met it; 0 if it knew
        none."""
        return self._sequence(topic, producer).last

    def append(self, group: ProducerRows) -> None:
        self._sequence(group.topic, group.producer).write(group.rows, group.before)

    def finish(self) -> None:
        """Wait until everything is on disk."""
        for sequence in self._sequences.values():
            sequence.finish()

    def _sequence(self, topic: str, name: str) -> ProducerSequence:
        key = topic, name
        if key not in self._sequences:
            self._sequences[key] = self._open(topic, name)
        return self._sequences[key]

    def _open(self, topic: str, name: str) -> ProducerSequence:
        if len(self._sequences) >= _SEQUENCES_MAX:
            raise InvalidRequest(f"one task publishes to at most {_SEQUENCES_MAX} topics and producers: repartition")
        client = self._connection()
        if self._options.create_partitions is not None:
            ensure_topic(client, topic, self._options.create_partitions)
        producer = client.producer(topic, name=name, timeout=self._options.timeout)
        return ProducerSequence(client, producer, topic, name, self._pace)

    def _connection(self) -> Client:
        if self._client is None:
            self._client = connect(self._options)
        return self._client


def connect(options: SinkOptions) -> Client:
    """Connect to the broker that the options name."""
    from penstock.client.sync import connect as connected

    return connected(
        options.broker,
        timeout=options.timeout,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        token_file=options.token_file,
    )


def ensure_topic(client: Client, topic: str, partitions: int) -> None:
    """Create the topic unless it exists. A topic that another task creates at the same moment is no error."""
    try:
        client.ask("system.topic.describe", {"topic": topic})
    except TopicNotSupported:
        try:
            client.ask("system.topic.create", {"topic": topic, "partitions": partitions})
        except InvalidRequest:
            client.ask("system.topic.describe", {"topic": topic})
