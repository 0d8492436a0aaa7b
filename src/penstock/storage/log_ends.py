"""Log ends: the catalog's record of how far each log went, so that a loss of files is noticed.

Without it a log whose newest segment or whole folder is gone would look like a shorter log. It would give offsets that
were already acknowledged to new messages.
"""

from __future__ import annotations

import logging

from penstock.core.errors import PenstockError
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.topics import LogEnd
from penstock.storage.log.log import Log

_LOG = logging.getLogger(__name__)

LogKey = tuple[int, int]
"""Topic uid and partition: a topic that was deleted and created again has another uid."""


class LogEnds:
    """The ends of a store's logs: those that the catalog has, and those of the open logs, which are saved next."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._recorded = catalog.log_ends()
        self._logs: dict[LogKey, Log] = {}
        self._failed = False

    def recorded(self, key: LogKey) -> LogEnd | None:
        """Return the end that the catalog has on record for a log; None if it has none."""
        return self._recorded.get(key)

    def add(self, key: LogKey, log: Log) -> None:
        self._logs[key] = log

    def remove(self, key: LogKey) -> None:
        self._logs.pop(key, None)
        self._recorded.pop(key, None)

    def save(self) -> None:
        """Save the ends that have changed; durable on return.

        An error of the catalog is logged, once until a save succeeds, and not raised: this record is only a safeguard.
        """
        ends = {key: log.end for key, log in list(self._logs.items())}
        changed = {key: end for key, end in ends.items() if end.next_offset and end != self._recorded.get(key)}
        if not changed:
            return
        try:
            self._catalog.save_log_ends(changed)
        except PenstockError as error:
            if not self._failed:
                _LOG.warning("the ends of %d logs could not be saved: %s", len(changed), error)
            self._failed = True
            return
        self._failed = False
        self._recorded |= changed
