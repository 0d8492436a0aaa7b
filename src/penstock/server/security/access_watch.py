"""Access, set up from the settings: the audit log, whose tokens are trusted, and what looks after both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.broker.access.policy import Access
from penstock.server.hub import Hub
from penstock.server.security.audit_log import AuditLog
from penstock.server.settings import Settings

_LOG: Final = logging.getLogger(__name__)
_INTERVAL_SECONDS: Final = 1.0
"""Until a line of the audit log is on disk, and until a key that is no longer trusted opens nothing."""


class AccessWatcher:
    """What access needs beside the broker: the audit log, and whose tokens count where everybody is asked who."""

    def __init__(self, settings: Settings, folder: Path, unix_ms: Callable[[], int]) -> None:
        self.access = Access(enabled=settings.asks_who)
        self._audit = AuditLog(folder, unix_ms)
        self._tokens = None
        self.access.audit = self._audit.note
        if settings.asks_who and settings.token_files is not None:
            from penstock.server.security.tokens import TokenVerifier  # signatures take a while to import

            self._tokens = TokenVerifier(settings.token_files)
            self.access.verifier = self._tokens.verify
            self.access.trust(self._tokens.marks)

    def warn_if_unreachable(self, settings: Settings) -> None:
        """A broker that nobody can enter is rarely meant."""
        if settings.asks_who and not self.access.has_keys and settings.token_files is None and settings.tls_ca is None:
            _LOG.warning(
                "authentication is on and there is no key: `penstock key create --data %s --role admin NAME` makes one",
                settings.data,
            )

    async def run(self, hub: Hub) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            await loop.run_in_executor(None, self._audit.write, self._audit.take())
            if self._tokens is not None and await loop.run_in_executor(None, self._tokens.reload_if_changed):
                self.access.trust(self._tokens.marks)
                hub.apply(hub.broker.gate.renewed())

    def close(self) -> None:
        self._audit.write(self._audit.take())
