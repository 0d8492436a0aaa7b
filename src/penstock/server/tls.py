"""TLS certificates from files, read again when they change. Open connections keep the certificate they began with."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    cert: Path
    key: Path
    ca: Path | None = None
    """The file with the authority that must have signed the certificates of clients; None if clients need no
    certificate."""


class ReloadingTls:
    """A server's TLS context that follows its certificate files. Raises `InvalidRequest` if the files cannot be used
    when it is created.

    The server listens with one fixed context, which only hands each new connection over to the newest context. Contexts
    are replaced rather than changed because a context cannot forget an authority that it once trusted.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._current = self._load_context()
        self.context = self._load_context()
        self.context.sni_callback = self._use_current
        self._loaded_stamps = self._stamps()

    def _use_current(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load_context(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that comes back authenticates again. TLS 1.2 resumes sessions in ways that cannot be turned off here.
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if files.ca is None else ssl.TLSVersion.TLSv1_3
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(files.cert, files.key)
            if files.ca is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(files.ca)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(str(path) for path in (files.cert, files.key, files.ca) if path is not None)
            raise InvalidRequest(f"the TLS files cannot be used ({named}): {error}") from None
        return context

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._files.cert, self._files.key, self._files.ca))

    def reload_if_changed(self) -> bool:
        """Load the certificates again if their files have changed. Returns True if new ones were loaded. If they cannot
        be used, an error is logged and the old ones stay."""
        now = self._stamps()
        if now == self._loaded_stamps:
            return False
        try:
            self._current = self._load_context()
        except InvalidRequest as error:
            _LOG.warning("certificates not reloaded", extra={"error": error.message})
            return False
        self._loaded_stamps = now
        _LOG.info("certificates reloaded", extra={"cert": str(self._files.cert)})
        return True


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        stat = path.stat() if path is not None else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_ino) if stat is not None else None
