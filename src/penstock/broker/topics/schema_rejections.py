"""Errors about messages that a topic's schema does not allow, and about names that do not exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import InvalidRequest, SchemaRejected, VerbatimDetails
from penstock.schema.language import PayloadFault

_REASONS_MAX: Final = 256
"""The most refused messages of one block whose reasons are sent, as an answer has to fit into a frame."""
_REASON_CHARS_MAX: Final = 300


class NotFound(InvalidRequest):
    """An error about a name that does not exist. Over HTTP its status is 404."""


def fault_text(fault: PayloadFault) -> str:
    return f"at {fault.path}: {fault.message}" if fault.path else fault.message


def rejection(fault: PayloadFault) -> SchemaRejected:
    shown = PayloadFault(fault.path[:_REASON_CHARS_MAX], fault.message[:_REASON_CHARS_MAX])
    return SchemaRejected(fault_text(shown), **({"path": shown.path} if shown.path else {}))


def block_rejection(refused: Mapping[int, PayloadFault]) -> SchemaRejected:
    """Return the error for a block of which nothing may be stored."""
    row, fault = min(refused.items())
    return SchemaRejected(
        f"message {row} of the block: {rejection(fault).message}", refused=VerbatimDetails(rejection_rows(refused))
    )


def rejection_rows(refused: Mapping[int, PayloadFault]) -> list[list[Any]]:
    """Return row, reason and path of each refused message. If there are very many, the later ones have the row
    alone."""
    shown = sorted(refused.items())
    rows = [
        [row, fault.message[:_REASON_CHARS_MAX], fault.path[:_REASON_CHARS_MAX]] for row, fault in shown[:_REASONS_MAX]
    ]
    return [*rows, *([row] for row, _ in shown[_REASONS_MAX:])]


def rows_by_fault(refused: Mapping[int, PayloadFault]) -> dict[PayloadFault, list[int]]:
    """Group the refused rows by their fault."""
    rows: dict[PayloadFault, list[int]] = {}
    for row, fault in refused.items():
        rows.setdefault(fault, []).append(row)
    return rows
