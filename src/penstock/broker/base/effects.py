"""Effects: what the broker wants done. Whoever holds the connections and the threads does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.core.errors import PenstockError
from penstock.core.schemas import Definition
from penstock.record.block import Block, Draft
from penstock.schema.language import PayloadFault
from penstock.schema.steps import Procedure
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log


class Send(NamedTuple):
    client: str
    frames: bytes
    """Whole frames, as TCP carries them."""


class Close(NamedTuple):
    """Flush what is queued, then close. The client has been told why."""

    client: str
    reason: PenstockError


class Append(NamedTuple):
    """Write a block to a log. Appends to one log are done, and answered, in the order in which they were asked for."""

    log: Log
    draft: Draft
    done: Callable[[AppendResult | PenstockError], list[Effect]]
    """To be told where the block lies, durably, or why it does not."""

    client: str = ""
    """Whose it is: it is to send no more while too much of its waits."""


class AppendAtomically(NamedTuple):
    """Several of them, which are taken together or not at all: where there is no room for all, none is written."""

    parts: tuple[Append, ...]


class RunInThread(NamedTuple):
    """Something that may wait for the disk, to be done in another thread."""

    run: Callable[[], Any]
    done: Callable[[Any], list[Effect]]
    """To be told what came of it: what was returned, or the `PenstockError` that was raised."""

    read_only: bool = False
    """It only reads: several at a time. All others are done one after another, in order."""


class ValidatePayloads(NamedTuple):
    """Hold the payloads of a block against a schema, in a process where they can do no harm."""

    definition: Definition
    schema_id: int
    block: Block
    done: Callable[[dict[int, PayloadFault] | PenstockError], list[Effect]]
    """To be told what is wrong with which row."""


class RunRegistryProcedure(NamedTuple):
    """Carry out a procedure of the registry."""

    procedure: Procedure[Any]
    done: Callable[[Any], list[Effect]]
    """To be told its result, or the `PenstockError` that ended it."""

    until_ms: int | None = None
    """What has not begun by then is not begun: whoever asked has given up. On the broker's clock."""


class AdjustBacklog(NamedTuple):
    """So many more bytes that a client sent wait for something; fewer where the number is negative."""

    client: str
    size: int


Effect = (
    Send | Close | Append | AppendAtomically | RunInThread | ValidatePayloads | RunRegistryProcedure | AdjustBacklog
)
