"""Files of an object store: S3, Google Cloud Storage, Azure, and `file://`. Lists, sizes and ranges, no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, cast

import obstore
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import ObjectStore, from_url

from penstock.core.errors import Forbidden, InvalidRequest, ServiceUnavailable
from penstock.spark.files.remote import Entry, Listing, RemoteDisk

_RETRIES_MAX: Final = 5
_RETRIED_SECONDS: Final = 60
_CLIENT_OPTIONS: Final[Mapping[str, type]] = {
    "allow_http": bool,
    "allow_invalid_certificates": bool,
    "connect_timeout": str,
    "http1_only": bool,
    "http2_only": bool,
    "pool_idle_timeout": str,
    "proxy_url": str,
    "timeout": str,
    "user_agent": str,
}
"""Options of the connection; all others are the store's own."""
_PREFIXES: Final = ("aws_", "azure_", "google_")


class ObjectDisk(RemoteDisk):
    """Of a URL; paths are below it. Options are those of obstore, with or without `aws_`, in any case."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Raises `InvalidRequest` for options that the store does not have."""
        super().__init__(ObjectPlace(url, opened(url, options or {})))


class ObjectPlace:
    def __init__(self, url: str, store: ObjectStore) -> None:
        self.name = url
        self._store = store

    def list(self, path: str) -> Listing:
        with self._answering():
            found = cast("Any", obstore.list_with_delimiter(self._store, path or None))
        below = len(f"{path}/") if path else 0
        files = {meta["path"][below:]: _entry(meta) for meta in found["objects"]}
        folders = tuple(prefix.rstrip("/")[below:] for prefix in found["common_prefixes"])
        return Listing(files, folders)

    def find(self, path: str) -> Entry:
        with self._answering():
            return _entry(obstore.head(self._store, path))

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        try:
            with self._answering():
                return bytes(obstore.get_range(self._store, path, start=start, end=stop))
        except ServiceUnavailable:
            if start >= self.find(path).size:
                return b""
            raise

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What the store raises, in our words; `FileNotFoundError` is one."""
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise Forbidden(
                f"{self.name} may not be read: {_said(error)}; give credentials as storage.* options", url=self.name
            ) from None
        except BaseError as error:
            raise ServiceUnavailable(f"{self.name} cannot be read: {_said(error)}", url=self.name) from None


def opened(url: str, options: Mapping[str, str]) -> ObjectStore:
    """Raises `InvalidRequest`, which names the option or the URL."""
    config, client = split_options(options)
    arguments: dict[str, Any] = {}
    if not url.startswith("file:"):
        retries = {"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRIED_SECONDS)}
        arguments = {"retry_config": retries, "client_options": client or None, "config": config or None}
    elif options:
        raise InvalidRequest(f"storage.{next(iter(options))} is an option of object stores, and {url} is none")
    try:
        return from_url(url, **arguments)
    except UnknownConfigurationKeyError as error:
        raise InvalidRequest(f"storage.*: {_said(error)}", url=url) from None
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidRequest(f"{url} cannot be opened: {_said(error)}", url=url) from None


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The store's own, and those of the connection to it. Raises `InvalidRequest` for a flag that is none."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for given, value in options.items():
        name = given.lower()
        bare = next((name.removeprefix(each) for each in _PREFIXES if name.startswith(each)), name)
        kind = _CLIENT_OPTIONS.get(bare)
        if kind is None:
            config[name] = value
        else:
            client[bare] = _flag(given, value) if kind is bool else value
    return config, client


def _flag(name: str, value: str) -> bool:
    found = {"true": True, "false": False}.get(value.lower())
    if found is None:
        raise InvalidRequest(f"storage.{name}={value!r}: true or false")
    return found


def _entry(meta: Any) -> Entry:
    return Entry(int(meta["size"]), str(meta["e_tag"] or meta["last_modified"]))


def _said(error: BaseException) -> str:
    """Its first line: what follows is for those who made the library."""
    return str(error).partition("\n")[0]
