"""Where compiled kernels are kept, and when they are compiled.

Kernels are compiled on first use and kept in a cache directory, so that only the first process on a machine waits.
The directory is `PENSTOCK_KERNEL_CACHE` if set, else `penstock/kernels` in the user's cache directory. A read-only one
(an image made with `penstock warm`) is used through a private copy; where there is none at all, every process compiles
for itself, and says so.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = "PENSTOCK_KERNEL_CACHE"
_SOURCES: Final = ("kernels.py", "simd.py", "layout.py", "kernel_cache.py")
_COMPLETE: Final = "complete"


class Kernel:
    """A function that numba compiles, or loads from the cache, when it is first called."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self.signature = signature
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None:
            prepare()
            self.load()
        return self._compiled(*arguments)  # type: ignore[misc]

    def load(self) -> None:
        import numba

        config: Any = numba.config
        with _SETTINGS:
            before = config.CACHE_DIR
            config.CACHE_DIR = str(directory())
            try:
                self._compiled = numba.njit(self.signature, nogil=True, cache=True, boundscheck=False)(self.function)
            finally:
                config.CACHE_DIR = before


_KERNELS: list[Kernel] = []
_SETTINGS = threading.RLock()
"""Held while numba's own cache setting is ours: it belongs to the whole process."""


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    def register(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signature)
        _KERNELS.append(made)
        return made

    return register


def prepare(*, say: Callable[[str], None] | None = None) -> float:
    """See that every kernel is in the cache; the seconds spent compiling, 0.0 when there was nothing to do.

    Two processes that do this at once do the work twice and agree on the result.
    """
    marker = directory() / _COMPLETE
    if marker.exists():
        return 0.0
    (say or _say)(f"penstock: compiling kernels for this machine, once, into {directory()} ...")
    began = time.monotonic()
    for made in _KERNELS:
        made.load()
    marker.touch()
    return time.monotonic() - began


def load_all() -> None:
    """Have every kernel ready, so that no later call pays for loading it."""
    prepare()
    for made in _KERNELS:
        made.load()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_chosen: Path | None = None


def directory() -> Path:
    global _chosen
    if _chosen is None:
        _chosen = _choose()
    return _chosen


def _choose() -> Path:
    wanted = _wanted() / _fingerprint()
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        return _private_copy(wanted)


def _wanted() -> Path:
    given = os.environ.get(ENVIRONMENT)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "penstock" / "kernels"


def _fingerprint() -> str:
    """One directory per version of the sources, the compiler and the interpreter: stale code is never loaded."""
    import numba

    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]}".encode())
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()[:16]


def _private_copy(readonly: Path) -> Path:
    private = Path(tempfile.mkdtemp(prefix="penstock-kernels-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    if readonly.is_dir():
        shutil.copytree(readonly, private, dirs_exist_ok=True)
    else:
        _say(f"penstock: no kernel cache can be written to {readonly}; set {ENVIRONMENT} to keep what is compiled")
    return private
