"""Checks of the values and keys of `send_many`. They run before any message is sent; an error names the number of the
value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any, Final

from penstock.client.wire.protocol import as_bytes
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.limits import KEY_BYTES_MAX
from penstock.record.message import checked_bytes

_PLAIN: Final = frozenset({bytes})
_PLAIN_KEYS: Final = frozenset({bytes, NoneType})


@contextmanager
def numbered_errors(number: int) -> Iterator[None]:
    """Put the number of a value into the message and the details of any `PenstockError` raised inside the `with`
    block."""
    try:
        yield
    except PenstockError as error:
        raise type(error)(f"value {number}: {error.message}", record=number, **error.details) from None


def checked_payloads(values: Sequence[Any]) -> Sequence[bytes]:
    """Return the values as payloads: bytes unchanged, text as UTF-8. Raises `InvalidRequest` for any other type."""
    if _PLAIN.issuperset(map(type, values)):
        return values
    return [_payload_of(number, value) for number, value in enumerate(values)]


def _payload_of(number: int, value: Any) -> bytes:
    try:
        return as_bytes(value)
    except TypeError as error:
        raise InvalidRequest(f"value {number}: {error}", record=number) from None


def checked_keys(keys: Sequence[Any] | None, count: int) -> Sequence[bytes | None] | None:
    """Return the keys as bytes, one for each of `count` values; None if `keys` is None.

    Raises `InvalidRequest` for another number of keys or a key that is no text or bytes, and `PayloadTooLarge` for a
    key that is too long.
    """
    if keys is None:
        return None
    if len(keys) != count:
        raise InvalidRequest(f"{count} values have {count} keys, not {len(keys)}: None for one without", field="keys")
    longest = max((len(key) for key in keys if isinstance(key, bytes)), default=0)
    if longest <= KEY_BYTES_MAX and _PLAIN_KEYS.issuperset(map(type, keys)):
        return keys
    return [_key_of(number, key) for number, key in enumerate(keys)]


def _key_of(number: int, key: Any) -> bytes | None:
    if key is None:
        return None
    with numbered_errors(number):
        return bytes(checked_bytes(key.encode() if isinstance(key, str) else key, "key", KEY_BYTES_MAX))
