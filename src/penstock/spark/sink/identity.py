"""Which write this is, and what became of its rows. Small values that travel between the driver and the tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """The same whenever the write is repeated."""

    query: str
    batch: int
    stream: bool = False
    """Its batches come in order: none before the last that was published ever comes again."""

    def producer(self, prefix: str, partition: int | None = None) -> str:
        """The name of the producer of one task, or of all of them together."""
        return f"{prefix}/{self.query}" if partition is None else f"{prefix}/{self.query}/{partition}"

    def check_order(self, last: int, where: object) -> None:
        """Raise `InvalidRequest` if this is a stream, and a later batch of it is published: its rows would be taken for
        rows that are there."""
        if self.stream and last > self.batch:
            raise InvalidRequest(
                f"{where}: batch {self.batch} of the stream {self.query} is to be published, and its batch {last} is"
                " there already: the query's checkpoint was begun anew, or is an older copy; rows would be lost. Use"
                " the checkpoint that belongs to it, or give the stream another name with the option run",
                option="run",
                batch=self.batch,
                last=last,
            )


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """What became of rows."""

    rows: int = 0
    stored_before: int = 0
    """Of them, stored by an attempt before."""

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.rows + other.rows, self.stored_before + other.stored_before)
