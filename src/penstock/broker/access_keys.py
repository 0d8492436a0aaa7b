"""Keys: `psk_<id>_<secret>`. Shown once, when they are made; what is kept is a digest, which opens nothing.

The secret has 256 bits of chance: nobody guesses it, however fast the hash. So the hash is fast.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b32encode
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequest

PREFIX: Final = "psk_"
"""By which people, and programs that look for leaked secrets, know one."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"psk_([a-z2-7]{13})_([a-z2-7]{52})", re.ASCII)
_CONTEXT: Final = b"penstock key\0"
"""What is hashed here is no digest of anything else."""


class NewKey(NamedTuple):
    key_id: str
    text: str
    """The key itself. Not to be kept."""
    digest: str


class GivenKey(NamedTuple):
    key_id: str
    secret: str


def new_key(chance: Callable[[int], bytes]) -> NewKey:
    """`chance` gives so many bytes that nobody can foresee."""
    key_id, secret = _spelled(chance(_ID_BYTES)), _spelled(chance(_SECRET_BYTES))
    return NewKey(key_id, f"{PREFIX}{key_id}_{secret}", digest_of(secret))


def parse_key(text: str) -> GivenKey | None:
    """None for what no key looks like."""
    found = _KEY.fullmatch(text)
    return None if found is None else GivenKey(found[1], found[2])


def digest_of(secret: str) -> str:
    return hashlib.sha256(_CONTEXT + secret.encode()).hexdigest()


def is_secret(secret: str, digest: str) -> bool:
    """In the same time, however much of it is right."""
    return hmac.compare_digest(digest_of(secret), digest)


def check_key_name(name: str) -> str:
    if KEY_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "a key's name has 1 to 63 letters, digits, '.', '_', '@' or '-', and begins with a letter or digit",
            field="name",
            given=name,
        )
    return name


def _spelled(raw: bytes) -> str:
    """Letters and digits alone: a double click marks all of it."""
    return b32encode(raw).decode().rstrip("=").lower()
