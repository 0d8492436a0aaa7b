"""Addresses of brokers: `tcp://host:port`, or `host:port` alone; `tls://host:port` for TLS."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.core.errors import InvalidRequest

DEFAULT: Final = "tcp://127.0.0.1:7450"
VARIABLE: Final = "PENSTOCK_URL"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    secure: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.secure else 'tcp'}://{host}:{self.port}"


def parse_url(url: str | None) -> Address:
    """Parse an address. None stands for PENSTOCK_URL, or `tcp://127.0.0.1:7450` if that is not set. Raises
    `InvalidRequest`."""
    url = url or os.environ.get(VARIABLE) or DEFAULT
    try:
        parts = urlsplit(url if "://" in url else f"tcp://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("tcp", "tls") or not host or port is None or parts.path not in ("", "/"):
        raise InvalidRequest(f"{url!r} is not the address of a broker: expected tcp://host:port or tls://host:port")
    return Address(host, port, parts.scheme == "tls")


def tls_context(ca: Path | str | None, cert: Path | str | None, key: Path | str | None) -> ssl.SSLContext:
    """Build a TLS context that trusts the authorities of the file `ca`, or without it those of this machine. `cert` and
    `key` are the client's certificate, for brokers that ask for one.

    Raises `InvalidRequest` if only one of them is set, or a file cannot be used.
    """
    if (cert is None) != (key is None):
        raise InvalidRequest("a certificate of ours needs both: tls_cert and tls_key")
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None:
            context.load_cert_chain(str(cert), None if key is None else str(key))
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(path) for path in (ca, cert, key) if path is not None)
        raise InvalidRequest(f"the TLS files cannot be used ({named}): {error}") from None
    return context
