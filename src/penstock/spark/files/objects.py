"""Files of an object store (S3, Google Cloud Storage, Azure, `file://`), for reading: listings, sizes and ranges of
bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import ObjectStore, from_url

from penstock.core.errors import Forbidden, InvalidRequest, ServiceUnavailable
from penstock.spark.files.remote import Listing, RemoteDisk, RemoteEntry
from penstock.spark.files.store_options import split_options, unknown_option

if TYPE_CHECKING:
    from obstore.store import RetryConfig

RETRIES: Final[RetryConfig] = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
"""Retries of a read. They are limited, since Spark repeats a task that fails."""
_PANIC: Final = "pyo3_runtime"
"""Module of the exception that the store's client raises when it panics: a `BaseException`, which no caller expects."""


class ObjectDisk(RemoteDisk):
    """The disk at the URL of an object store; paths are relative to the URL. Options are those of obstore, in upper or
    lower case; the prefix of a store's options, such as `aws_`, may be left out."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Open the store without sending a request. Raises `InvalidRequest` for options that the store does not
        have."""
        super().__init__(ObjectStoreFiles(url, open_store(url, options or {})))


class ObjectStoreFiles:
    def __init__(self, url: str, store: ObjectStore) -> None:
        self.name = url
        self._store = store

    def list(self, path: str) -> Listing:
        with self._translated_errors():
            listed = cast("Any", obstore.list_with_delimiter(self._store, path or None))
        below = len(f"{path}/") if path else 0
        files = {meta["path"][below:]: _entry(meta) for meta in listed["objects"]}
        folders = tuple(prefix.rstrip("/")[below:] for prefix in listed["common_prefixes"])
        return Listing(files, folders)

    def find(self, path: str) -> RemoteEntry:
        with self._translated_errors():
            return _entry(obstore.head(self._store, path))

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        try:
            with self._translated_errors():
                return bytes(obstore.get_range(self._store, path, start=start, end=stop))
        except ServiceUnavailable:
            if start >= self.find(path).size:
                return b""
            raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of the store that leave the block into `Forbidden` (no permission) or `ServiceUnavailable` (all
        others). `FileNotFoundError` stays as it is."""
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Forbidden(
                f"{self.name} may not be read: {_first_line(error)}; give credentials as storage.* options",
                url=self.name,
            ) from None
        except BaseError as error:
            raise ServiceUnavailable(f"{self.name} cannot be read: {_first_line(error)}", url=self.name) from None


def check_options(url: str, options: Mapping[str, str]) -> None:
    """Raise `InvalidRequest`, which names the option, for options that the store does not have or cannot combine. No
    request is sent to the store, so the check can run before any work."""
    open_store(url, options)


def open_store(url: str, options: Mapping[str, str], *, retries: RetryConfig | None = RETRIES) -> ObjectStore:
    """Return the store at a URL; no request is sent yet. With `retries` None the client's own defaults apply.

    Raises `InvalidRequest`, which names the option or the URL, if the store cannot be opened with them.
    """
    config, connection = split_options(options)
    arguments: dict[str, Any] = {
        "client_options": connection or None,
        "config": config or None,
        "retry_config": retries,
    }
    if url.startswith("file:"):
        if options:
            raise InvalidRequest(f"storage.{next(iter(options))} is an option of object stores, and {url} is none")
        arguments = {}
    try:
        with _without_panic():
            return from_url(url, **arguments)
    except UnknownConfigurationKeyError as error:
        raise unknown_option(url, _first_line(error)) from None
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidRequest(f"{url} cannot be opened: {_first_line(error)}", url=url) from None


@contextmanager
def _without_panic() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != _PANIC:
            raise
        raise ValueError(str(error)) from None


def _entry(meta: Any) -> RemoteEntry:
    return RemoteEntry(int(meta["size"]), str(meta["e_tag"] or meta["last_modified"]))


def _first_line(error: BaseException) -> str:
    """Return the first line of an error: the rest is for the library's authors."""
    return str(error).partition("\n")[0]
