"""The identity of a write and the counts of its rows: small values that travel between the driver and the tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """The identity of a write: the same whenever the write is repeated."""

    query: str
    batch: int
    stream: bool = False
    """True for a streaming query, whose batches come in order: after a batch is published, no earlier one comes
    again."""

    def producer(self, prefix: str, partition: int | None = None) -> str:
        """Return the producer name for the rows of one task; without `partition`, the one for the rows of all tasks
        together."""
        return f"{prefix}/{self.query}" if partition is None else f"{prefix}/{self.query}/{partition}"

    def check_order(self, last: int, where: object) -> None:
        """Raise `InvalidRequest` if `last`, the last published batch, is a later batch of this stream than this one.

        Rows of this batch would be taken for stored ones, and lost. `where` names the destination in the error. Writes
        that are no stream are not checked.
        """
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
    """Counts of the rows of a write."""

    rows: int = 0
    stored_before: int = 0
    """The part of `rows` that an earlier attempt had stored."""

    def __add__(self, other: WriteCounts) -> WriteCounts:
        return WriteCounts(self.rows + other.rows, self.stored_before + other.stored_before)
