"""Receipts: where a published message lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import PenstockError, SchemaRejected
from penstock.core.ids import high_word, parse_id, ticks_of_id


@dataclass(frozen=True, slots=True)
class Receipt:
    """On disk, at this place. A duplicate was there already: somebody had sent it before."""

    partition: int
    offset: int
    duplicate: bool
    id: str | None
    """None for a duplicate: its id is the one it was first confirmed with."""


def receipt_of(payload: bytes) -> Receipt | None:
    """What an answer to `publish` says; None where the topic is live."""
    facts = json.loads(payload) if payload.startswith(b'{"partition"') else None
    if facts is None:
        return None
    return Receipt(facts["partition"], facts["offset"], facts["duplicate"], facts.get("id"))


Outcome = Receipt | PenstockError
"""What became of a message."""


def refused_rows(facts: Mapping[str, Any]) -> dict[int, SchemaRejected]:
    """Those of a block that the topic's schema policy refused, by their row."""
    refused = facts.get("refused")
    if not isinstance(refused, list):  # there are none, or so many that the broker could not list them in an error
        return {}
    return {row: _rejected(*told) for row, *told in refused}


def _rejected(reason: str = "refused, as those before it", path: str = "") -> SchemaRejected:
    """Of very many the broker tells the reasons of the first alone."""
    return SchemaRejected(f"at {path}: {reason}" if path else reason, path=path)


def rejection_error(refused: Mapping[int, SchemaRejected], count: int) -> SchemaRejected:
    """What is wrong with some of `count` messages, in one error: its details have the number of each, why and where."""
    listed = [[row, each.message, each.details["path"]] for row, each in refused.items()]
    row, reason, _ = listed[0]
    return SchemaRejected(f"{len(listed)} of {count} messages were refused; message {row}: {reason}", refused=listed)


class BlockReceipts:
    """Those of one block of `count` messages, worked out when somebody asks."""

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
            self._all = self._placed()
        return self._all[index]

    def _placed(self) -> list[Outcome]:
        """Each went to its key's partition, those without a key together to one, behind each other in each."""
        from penstock.record.message import partition_of

        settled: dict[int, Outcome] = dict(self.refused)
        for row, where, offset in self._facts["duplicates"]:
            settled[row] = Receipt(where, offset, duplicate=True, id=None)
        parts = {partition: [offset, _Ids(first_id), 0] for partition, offset, _, first_id in self._facts["parts"]}
        counts = {partition: count for partition, _, count, _ in self._facts["parts"]}
        keys = self._keys or [None] * len(self)
        wanted = [None if key is None else partition_of(key, self._partitions) for key in keys]
        for row in range(len(self)):
            if row not in settled and wanted[row] is not None:
                counts[wanted[row]] -= 1
        keyless = next((partition for partition, count in counts.items() if count), 0)
        placed: list[Outcome] = []
        for row, partition in enumerate(wanted):
            if row in settled:
                placed.append(settled[row])
                continue
            where = keyless if partition is None else partition
            part = parts[where]
            placed.append(Receipt(where, part[0] + part[2], duplicate=False, id=part[1][part[2]]))
            part[2] += 1
        return placed


class _Ids:
    """Of messages that were stored together: one tick apart."""

    def __init__(self, first_id: str) -> None:
        raw = parse_id(first_id)
        self._ticks = ticks_of_id(raw)
        self._tail = first_id[18:]

    def __getitem__(self, index: int) -> str:
        head = f"{high_word(self._ticks + index):016x}"
        return f"{head[:8]}-{head[8:12]}-{head[12:]}{self._tail}"
