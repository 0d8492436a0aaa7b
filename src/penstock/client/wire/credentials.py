"""Credentials of a client: a key or a token, from an argument, a file or the environment. They are never shown or
logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest

VARIABLE: Final = "PENSTOCK_TOKEN"
FILE_VARIABLE: Final = "PENSTOCK_TOKEN_FILE"
REGISTRY_VARIABLE: Final = "PENSTOCK_REGISTRY_TOKEN"
"""The variable with the token for a schema registry that is reached over HTTP. The broker's token is not sent there,
since that registry may belong to others."""
TOKEN_CHARS_MAX: Final = 8192
"""The longest token that a broker accepts."""

Token = str | Callable[[], str]
"""A key or a token; or a function that returns the current one and is called for every connection."""


class Secret:
    """A token, or a function that returns it. The repr does not reveal the token, so that none gets into logs or
    tracebacks."""

    __slots__ = ("_give",)

    def __init__(self, give: Callable[[], str]) -> None:
        self._give = give

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("a secret stays where it is: give it where it is needed, by a file or PENSTOCK_TOKEN")

    def reveal(self) -> str:
        """Return the token, from its source. Raises `InvalidRequest` if it cannot be read, is empty, too long, or has
        characters that no token has."""
        token: object = self._give()
        if not isinstance(token, str) or not 0 < len(token) <= TOKEN_CHARS_MAX or not _is_plain(token):
            raise InvalidRequest(
                f"the token is empty, longer than {TOKEN_CHARS_MAX} characters, or has characters that no token has"
            )
        return token


def find_secret(token: Token | None = None, token_file: Path | str | None = None) -> Secret | None:
    """Return the first secret that is set: `token`, `token_file`, PENSTOCK_TOKEN, or PENSTOCK_TOKEN_FILE; None if none
    is.

    A token file is only read when the secret is revealed.
    """
    if token is not None:
        return Secret(token if callable(token) else lambda: token)
    if token_file is not None:
        return Secret(lambda: read_token(token_file))
    named = os.environ.get(FILE_VARIABLE)
    return secret_in(VARIABLE) or (Secret(lambda: read_token(named)) if named else None)


def secret_in(variable: str) -> Secret | None:
    """Return the secret in an environment variable; None if it is not set."""
    token = os.environ.get(variable)
    return Secret(lambda: token) if token else None


def read_token(path: Path | str) -> str:
    """Return the content of a token file without surrounding white space. Raises `InvalidRequest` if it cannot be read
    or is not ASCII."""
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(2 * TOKEN_CHARS_MAX).decode("ascii").strip()
    except OSError as error:
        raise InvalidRequest(f"the token file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"the token file {path} holds no token: it is not plain text") from None


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
