"""Credentials of a client: a key or a token, from an argument, a file or the environment. Never shown, never logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest

VARIABLE: Final = "PENSTOCK_TOKEN"
FILE_VARIABLE: Final = "PENSTOCK_TOKEN_FILE"
REGISTRY_VARIABLE: Final = "PENSTOCK_REGISTRY_TOKEN"
"""The token for a schema registry that is reached over HTTP. That may belong to others, so the broker's token is not
sent."""
TOKEN_CHARS_MAX: Final = 8192
"""The longest token that a broker accepts."""

Token = str | Callable[[], str]
"""A key or a token; or a function that returns the current one, called for every connection."""


class Secret:
    """A token, or its source. Printing it, or a traceback with it, reveals nothing."""

    __slots__ = ("_give",)

    def __init__(self, give: Callable[[], str]) -> None:
        self._give = give

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("a secret stays where it is: give it where it is needed, by a file or PENSTOCK_TOKEN")

    def reveal(self) -> str:
        """Return the token. Raises `InvalidRequest` if it is empty, too long, or has characters that no token has."""
        token: object = self._give()
        if not isinstance(token, str) or not 0 < len(token) <= TOKEN_CHARS_MAX or not _is_plain(token):
            raise InvalidRequest(
                f"the token is empty, longer than {TOKEN_CHARS_MAX} characters, or has characters that no token has"
            )
        return token


def find_secret(token: Token | None = None, token_file: Path | str | None = None) -> Secret | None:
    """Return the first secret among `token`, `token_file`, PENSTOCK_TOKEN and PENSTOCK_TOKEN_FILE; None if
    none is set."""
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
    """Return the content of a token file, without the white space around it. Raises `InvalidRequest`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(2 * TOKEN_CHARS_MAX).decode("ascii").strip()
    except OSError as error:
        raise InvalidRequest(f"the token file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"the token file {path} holds no token: it is not plain text") from None


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
