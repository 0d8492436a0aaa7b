"""Ports for programs that have to be told theirs before they are started."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST: Final = 10_000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that nobody who asks for any port is given meanwhile: they lie below those
    that the system gives out."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(_FIRST, _below())
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _below() -> int:
    """Where the ports begin that the system gives out."""
    given = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 0
    return given if given > 2 * _FIRST else 1 << 15


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: one that has ended is no hindrance
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
