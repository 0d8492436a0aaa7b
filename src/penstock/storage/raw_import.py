"""The import of raw segments made elsewhere: id, type and message of each record, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.core.errors import PayloadTooLarge
from penstock.core.ids import format_id
from penstock.core.limits import TYPE_BYTES_MAX
from penstock.record import layout as at
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import File
from penstock.storage.inspect.raw_segments import RawRecord, raw_records
from penstock.storage.log.group_commit import GroupCommit
from penstock.storage.log.log import Log

ORIGINAL_ID: Final = "x-original-id"
"""The attribute that keeps a message's original id when it gets a new one."""
_ATTRIBUTE_BYTES: Final = len(ORIGINAL_ID) + 36 + 6
_GROUP_MESSAGES: Final = 1000
"""Messages made durable together: as many as `penstock log append` takes at once."""


class RawImport:
    """An import into one log, through its writer. With `restamp`, every message gets a new id, and keeps the original
    one as an attribute; without it, messages keep their ids."""

    def __init__(self, writer: GroupCommit, log: Log, *, key: bytes | None = None, restamp: bool = False) -> None:
        self._writer = writer
        self._log = log
        self._key = key
        self._restamp = restamp
        self._group: list[RawRecord] = []
        self._bytes = 0

    def take(self, file: File) -> Iterator[str]:
        """Append all good records of a file, and yield a sentence for each bad one. Durable when the iteration ends.

        Messages are appended in groups. Raises `InvalidRequest` if the ids of a group do not rise above those of the
        log; earlier groups stay in the log.
        """
        for item in raw_records(file, file.size(), key=self._key):
            if isinstance(item, str):
                yield item
            elif (wrong := self._wrong(item)) is not None:
                yield f"record {item.number}: {wrong}"
            else:
                self._add(item)
        self._flush()

    def _wrong(self, record: RawRecord) -> str | None:
        """Return why a good record cannot become a message here; None if it can."""
        try:
            record.type.decode()
            Draft.of([_message(record, restamp=self._restamp)]).check_sizes(self._log.limits)
        except UnicodeDecodeError:
            return "its type is not UTF-8"
        except PayloadTooLarge as error:
            return error.message
        return None

    def _add(self, record: RawRecord) -> None:
        size = at.MESSAGE_RECORD_BYTES_MIN + TYPE_BYTES_MAX + _ATTRIBUTE_BYTES + len(record.message)
        if len(self._group) == _GROUP_MESSAGES or self._bytes + size > self._log.limits.block_bytes_max:
            self._flush()
        self._group.append(record)
        self._bytes += size

    def _flush(self) -> None:
        group, self._group, self._bytes = self._group, [], 0
        if not group:
            return
        draft = Draft.of(_message(record, restamp=self._restamp) for record in group)
        if self._restamp:
            self._writer.append(self._log, draft)
        else:
            self._writer.run(lambda: self._log.append_with_ids(draft, [record.id for record in group]))


def _message(record: RawRecord, *, restamp: bool) -> Message:
    attributes = {ORIGINAL_ID: format_id(record.id)} if restamp else {}
    return Message(payload=record.message, type=record.type.decode(), attributes=attributes)
