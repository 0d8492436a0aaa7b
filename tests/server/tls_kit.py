"""Certificates, made when they are needed: nothing binary lies in the repository."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]


def _openssl(*arguments: str | Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command makes the certificates, and is not here")
    done = subprocess.run(["openssl", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    folder: Path
    name: str

    @property
    def pair(self) -> Pair:
        return Pair(self.folder / f"{self.name}.pem", self.folder / f"{self.name}.key")

    @classmethod
    def make(cls, folder: Path, name: str) -> Authority:
        made = cls(folder, name)
        files = made.pair
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", files.key, "-out", files.cert, "-subj", f"/CN={name}")
        return made

    def issue(self, name: str, address: str = "127.0.0.1") -> Pair:
        """A certificate for localhost, good for a server and for a client."""
        files = Pair(self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key")
        _openssl(
            "req", "-x509", *_NEW_KEY, "-CA", self.pair.cert, "-CAkey", self.pair.key, "-subj", f"/CN={name}",
            "-addext", f"subjectAltName=DNS:localhost,IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE",
            "-keyout", files.key, "-out", files.cert,
        )  # fmt: skip
        return files

    def client(self, own: Pair | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts this authority; `own` is its certificate."""
        context = ssl.create_default_context(cafile=str(self.pair.cert))
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        return context


def replace(target: Path, source: Path) -> None:
    """Replace a file atomically, as a careful operator does."""
    part = target.with_suffix(".part")
    shutil.copyfile(source, part)
    part.replace(target)
