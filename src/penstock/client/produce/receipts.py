"""Receipts: the positions at which published messages are stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import PenstockError, SchemaRejected
from penstock.core.ids import high_word, parse_id, ticks_of_id


@dataclass(frozen=True, slots=True)
class Receipt:
    """The position of a message that is on disk. `duplicate` is True if an earlier send had stored it."""

    partition: int
    offset: int
    duplicate: bool
    id: str | None
    """The message's id; None for a duplicate, whose id is in the first receipt."""


def receipt_of(payload: bytes) -> Receipt | None:
    """Parse the response to a `publish` call; return None for a live topic, which has no receipts."""
    answer = json.loads(payload) if payload.startswith(b'{"partition"') else None
    if answer is None:
        return None
    return Receipt(answer["partition"], answer["offset"], answer["duplicate"], answer.get("id"))


Outcome = Receipt | PenstockError
"""The outcome of one message: its receipt, or the error for which it was not stored."""


def refused_rows(answer: Mapping[str, Any]) -> dict[int, SchemaRejected]:
    """Return the messages of a block that the schema policy refused: an error by row. Empty if the answer does not list
    them."""
    refused = answer.get("refused")
    if not isinstance(refused, list):  # none, or so many that the broker could not list them in an error
        return {}
    return {row: _rejected(*reason) for row, *reason in refused}


def _rejected(reason: str = "refused, as those before it", path: str = "") -> SchemaRejected:
    """Build the error of one message. If very many were refused, the broker gives reasons only for the first; the
    defaults are for the others."""
    return SchemaRejected(f"at {path}: {reason}" if path else reason, path=path)


def rejection_error(refused: Mapping[int, SchemaRejected], count: int) -> SchemaRejected:
    """Build one error about all refused messages of `count`. Its details list the number, the reason and the path of
    each."""
    listed = [[row, error.message, error.details["path"]] for row, error in refused.items()]
    row, reason, _ = listed[0]
    return SchemaRejected(f"{len(listed)} of {count} messages were refused; message {row}: {reason}", refused=listed)


class BlockReceipts:
    """A sequence of the outcomes of a block of `count` messages: receipts, or errors. They are computed on demand."""

    def __init__(
        self, facts: Mapping[str, Any], count: int, keys: Sequence[bytes | None] | None, partitions: int
    ) -> None:
        self.refused = refused_rows(facts)
        self._facts = facts
        self._count = count
        self._keys = keys
        self._partitions = partitions
        self._all: list[Outcome] | None = None
        self._ids: _Ids | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Outcome:
        parts = self._facts["parts"]
        if len(parts) == 1 and not self._facts["duplicates"] and not self.refused:
            partition, offset, _, first_id = parts[0]
            if self._ids is None:
                self._ids = _Ids(first_id)
            return Receipt(partition, offset + index, duplicate=False, id=self._ids[index])
        if self._all is None:
            self._all = self._compute_all()
        return self._all[index]

    def _compute_all(self) -> list[Outcome]:
        """Compute every outcome. A message with a key is in the partition of its key; all messages without a key are in
        one partition, in order."""
        from penstock.record.message import partition_of

        known: dict[int, Outcome] = dict(self.refused)
        for row, where, offset in self._facts["duplicates"]:
            known[row] = Receipt(where, offset, duplicate=True, id=None)
        parts = {partition: [offset, _Ids(first_id), 0] for partition, offset, _, first_id in self._facts["parts"]}
        counts = {partition: count for partition, _, count, _ in self._facts["parts"]}
        keys = self._keys or [None] * len(self)
        partitions = [None if key is None else partition_of(key, self._partitions) for key in keys]
        for row in range(len(self)):
            if row not in known and partitions[row] is not None:
                counts[partitions[row]] -= 1
        keyless = next((partition for partition, count in counts.items() if count), 0)
        outcomes: list[Outcome] = []
        for row, partition in enumerate(partitions):
            if row in known:
                outcomes.append(known[row])
                continue
            where = keyless if partition is None else partition
            part = parts[where]
            outcomes.append(Receipt(where, part[0] + part[2], duplicate=False, id=part[1][part[2]]))
            part[2] += 1
        return outcomes


class _Ids:
    """A sequence of the ids of messages that were stored together. Each is one clock tick after the one before."""

    def __init__(self, first_id: str) -> None:
        raw = parse_id(first_id)
        self._ticks = ticks_of_id(raw)
        self._tail = first_id[18:]

    def __getitem__(self, index: int) -> str:
        head = f"{high_word(self._ticks + index):016x}"
        return f"{head[:8]}-{head[8:12]}-{head[12:]}{self._tail}"
