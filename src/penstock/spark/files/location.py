"""The location of a log's files: a directory, an object store, or a broker's HTTP. It is a small value that Spark sends
to its workers.

`open` returns a reader that is the same for all three, so code that plans and reads need not know which it is. Nothing
here keeps a file, a connection or a listing: a task opens what it needs and closes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.core.errors import InvalidRequest
from penstock.storage.base.disk import Disk, OsDisk
from penstock.storage.inspect.data_reader import DataReader

OBJECT_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file")
BROKER_SCHEMES: Final = ("http", "https")

TLS_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key", "token_file")
"""Options with files for connections to a broker. They are allowed for every location: a reader of files, too, may
report its position to a broker.

A token itself is no option: Spark shows options in plans and keeps them in checkpoints.
"""

_HERE: Final = Path()
"""Root path of object stores and brokers, whose paths are relative to the location itself."""


@dataclass(frozen=True, slots=True)
class Location:
    """A location `uri`: an absolute directory, the URL of an object store, or the `http(s)://` address of a broker."""

    uri: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of the object store or the connection. May hold keys and passwords, so they are never shown."""

    @classmethod
    def parse(
        cls, *, path: str | None = None, url: str | None = None, storage_options: Mapping[str, str] | None = None
    ) -> Location:
        """Return the location for one of the options: `path`, a directory or the URL of an object store, or `url`, the
        address of a broker. Nothing is read.

        Raises `InvalidRequest`, which names the option, if both or neither are given or one is not valid.
        """
        chosen = tuple(sorted((storage_options or {}).items()))
        if path and url:
            raise InvalidRequest(
                f"path={path!r} and url={url!r} are given: path is for files, url for a broker; give one"
            )
        others = [name for name, _ in chosen if name not in TLS_OPTIONS]
        if url and others:
            raise InvalidRequest(f"storage.{others[0]} is no option of a broker: {', '.join(TLS_OPTIONS)} are")
        if url:
            return cls(_broker(url), chosen)
        if not path:
            raise InvalidRequest(
                "neither path nor url is given: path is a data directory or the URL of an object store"
                " (s3://bucket/data), url the HTTP address of a broker (http://127.0.0.1:7452)"
            )
        if others and "://" not in path:
            raise InvalidRequest(
                f"storage.{others[0]} is an option of object stores, and path={path!r} is a local directory"
            )
        location = cls(_files(path), chosen)
        if others:
            location.disk()  # refuse an unknown option now, before any work
        return location

    @property
    def directory(self) -> Path | None:
        """The local directory, also for a `file://` URL; None for an object store elsewhere and for a broker."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return Path(self.uri) if self.uri.startswith("/") else None

    @property
    def is_broker(self) -> bool:
        return self.uri.startswith(tuple(f"{scheme}://" for scheme in BROKER_SCHEMES))

    def disk(self) -> Disk:
        """Return a disk that reads the files of this location. The paths that it takes begin with `root`."""
        if self.uri.startswith("/"):
            return OsDisk()
        if self.is_broker:
            from penstock.spark.files.http import HttpDisk

            return HttpDisk(self.uri, dict(self.storage_options))
        from penstock.spark.files.objects import ObjectDisk

        return ObjectDisk(self.uri, {name: value for name, value in self.storage_options if name not in TLS_OPTIONS})

    @property
    def root(self) -> Path:
        return Path(self.uri) if self.uri.startswith("/") else _HERE

    def open(self) -> DataReader:
        """Open the data for reading. Raises `InvalidRequest` if it has no logs, `ServiceUnavailable` if the server does
        not answer."""
        return DataReader(self.root, disk=self.disk(), name=self.uri)

    def __str__(self) -> str:
        return self.uri


def _files(path: str) -> str:
    parts = _split("path", path)
    if "://" not in path:
        return str(Path(path).expanduser().absolute())
    if parts.scheme in BROKER_SCHEMES:
        raise InvalidRequest(f"path={path!r} is a broker's address: give it as url")
    if parts.scheme not in OBJECT_SCHEMES:
        allowed = ", ".join(f"{scheme}://" for scheme in OBJECT_SCHEMES)
        raise InvalidRequest(f"path={path!r}: files are read from a directory, or from {allowed}")
    if parts.scheme == "file" and (parts.netloc or not parts.path):
        raise InvalidRequest(f"path={path!r}: a local directory is written file:///data, with three slashes")
    return path.rstrip("/") if parts.path.strip("/") else path


def _broker(url: str) -> str:
    parts = _split("url", url)
    if parts.scheme not in BROKER_SCHEMES or not parts.hostname:
        raise InvalidRequest(f"url={url!r}: a broker's HTTP address is http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise InvalidRequest(f"url={url!r}: nothing but the address of the broker belongs there")
    return url.rstrip("/")


def _split(option: str, given: str) -> SplitResult:
    try:
        parts = urlsplit(given)
        _ = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{option}={given!r} is no address: {error}") from None
    return parts
