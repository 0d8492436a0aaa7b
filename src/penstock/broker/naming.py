"""Which schema a message is written with, where its envelope names none: by its attributes, or by its topic."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.core.schemas import SCHEMA_VERSION_MAX
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.record.message import NUMBER_MAX, Message, SchemaRef

SCHEMA_ID: Final = "schema_id"
SCHEMA_VERSION: Final = "schema_version"
_DIGITS_MAX: Final = 19


def names_schema(message: Message) -> bool:
    return message.schema is not None or SCHEMA_ID in message.attributes


def stamped(block: Block, default: SchemaRef | None) -> Block:
    """The same, in which those that name no schema bear the one that their attributes name, or else the default."""
    block = _by_attributes(block)
    if default is None:
        return block
    nameless = (block.columns[:, at.FLAGS] & at.FLAG_SCHEMA) == 0
    return block.with_schema(nameless, default) if nameless.any() else block


def _by_attributes(block: Block) -> Block:
    """An attribute of that name that is no number is somebody's own, and names nothing."""
    columns = block.columns
    nameless = ((columns[:, at.FLAGS] & at.FLAG_SCHEMA) == 0) & (columns[:, at.ATTRIBUTES] > 0)
    if not nameless.any():
        return block
    texts = block.attribute(SCHEMA_ID, nameless)
    ids = {row: found for row, text in texts.items() if (found := _number(text, NUMBER_MAX))}
    if not ids:
        return block
    versions = block.attribute(SCHEMA_VERSION, nameless)
    numbers = [_number(versions.get(row, ""), SCHEMA_VERSION_MAX) for row in ids]
    return block.with_schemas(np.array(list(ids)), np.array(list(ids.values())), np.array(numbers))


def _number(text: str, most: int) -> int:
    """0 for anything but a number of at most so much."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return 0
    return int(text) if int(text) <= most else 0
