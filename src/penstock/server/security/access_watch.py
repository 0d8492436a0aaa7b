"""The access watcher: sets up access control from the settings, writes the audit log, and reloads the keys that verify
tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.broker.access.policy import AccessPolicy
from penstock.server.hub import Hub
from penstock.server.security.audit_log import AuditLog
from penstock.server.settings import Settings

_LOG: Final = logging.getLogger(__name__)
_INTERVAL_SECONDS: Final = 1.0
"""The seconds between two rounds: so long it takes at most until a line of the audit log is written, and until a token
whose key was removed is rejected."""


class AccessWatcher:
    """The server's side of access control: the audit log, and the verification of tokens if authentication is on."""

    def __init__(self, settings: Settings, folder: Path, unix_ms: Callable[[], int]) -> None:
        self.access = AccessPolicy(enabled=settings.requires_authentication)
        self._audit = AuditLog(folder, unix_ms)
        self._tokens = None
        self.access.audit = self._audit.note
        if settings.requires_authentication and settings.token_files is not None:
            from penstock.server.security.tokens import TokenVerifier  # signature libraries take a while to import

            self._tokens = TokenVerifier(settings.token_files)
            self.access.verifier = self._tokens.verify
            self.access.trust(self._tokens.marks)

    def warn_if_unreachable(self, settings: Settings) -> None:
        """Log a warning if authentication is on, but there are no keys, no token files and no authority for client
        certificates: then no client can authenticate."""
        if (
            settings.requires_authentication
            and not self.access.has_keys
            and settings.token_files is None
            and settings.tls_ca is None
        ):
            _LOG.warning(
                "authentication is on and there is no key: `penstock key create --data %s --role admin NAME` makes one",
                settings.data,
            )

    async def run(self, hub: Hub) -> None:
        """Every second until cancelled, write the audit log, and reload the keys for tokens if their files have
        changed. Clients whose key is no longer trusted lose their access."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            await loop.run_in_executor(None, self._audit.write, self._audit.take())
            if self._tokens is not None and await loop.run_in_executor(None, self._tokens.reload_if_changed):
                self.access.trust(self._tokens.marks)
                hub.apply(hub.broker.enforcer.trust_changed())

    def close(self) -> None:
        self._audit.write(self._audit.take())
