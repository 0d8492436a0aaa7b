"""Effects: values that say what the broker wants done. The server, which owns connections and threads, carries them
out."""

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
    """Send what is queued for a connection, then close it. The frame that tells the client the reason is in the queue
    already."""

    client: str
    reason: PenstockError


class Append(NamedTuple):
    """Write a block to a log. Appends to one log are written, and answered, in the order of their requests."""

    log: Log
    draft: Draft
    done: Callable[[AppendResult | PenstockError], list[Effect]]
    """Continuation: gets the position of the block once it is durable, or the error."""

    client: str = ""
    """The client that sent the block. Its connection is not read while too many of its bytes wait to be written."""


class AppendAtomically(NamedTuple):
    """Appends of which all or none are accepted: if there is no room for all, none is written. A disk that fails
    meanwhile may still leave a part."""

    parts: tuple[Append, ...]


class RunInThread(NamedTuple):
    """Call a function that may wait for the disk, in another thread."""

    run: Callable[[], Any]
    done: Callable[[Any], list[Effect]]
    """Continuation: takes the returned value, or the `PenstockError` that was raised."""

    read_only: bool = False
    """True for a function that changes nothing: several of them run at a time. All others run one after another, in
    order."""


class ValidatePayloads(NamedTuple):
    """Validate the payloads of a block against a schema, in a worker process, where a hostile payload can do no
    harm."""

    definition: Definition
    schema_id: int
    block: Block
    done: Callable[[dict[int, PayloadFault] | PenstockError], list[Effect]]
    """Continuation: gets the faults by row, without the rows that are valid, or the error."""


class RunRegistryProcedure(NamedTuple):
    """Run a procedure of the schema registry."""

    procedure: Procedure[Any]
    done: Callable[[Any], list[Effect]]
    """Continuation: takes the procedure's result, or the `PenstockError` that ended it."""

    until_ms: int | None = None
    """Deadline on the broker's clock. A procedure that has not begun by then is dropped, as its requester has given
    up."""


class AdjustBacklog(NamedTuple):
    """Change the count of a client's bytes that wait inside the broker. A negative size subtracts."""

    client: str
    size: int


Effect = (
    Send | Close | Append | AppendAtomically | RunInThread | ValidatePayloads | RunRegistryProcedure | AdjustBacklog
)
