"""The kernel cache: where compiled kernels are stored, and when they are compiled.

Kernels are compiled on first use and stored in a cache directory, so that only the first process on a machine waits.
The directory is `PENSTOCK_KERNEL_CACHE` if set, else `penstock/kernels` in the user's cache directory. A read-only one
(an image made with `penstock warm`) is used through a private copy; without a usable cache, every process compiles the
kernels it calls, and logs so.
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
_SOURCES: Final = (*sorted(Path(__file__).parent.glob("*.py")), Path(__file__).parents[1] / "layout.py")
_COMPLETE: Final = "complete"
_FOR_ITSELF: Final = "this process compiles the kernels that it needs"


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

    @property
    def loaded(self) -> bool:
        return self._compiled is not None

    def load(self) -> None:
        with _SETTINGS:
            if self._compiled is not None:
                return
            place = directory()
            if place is not None:
                try:
                    self._compiled = self._compile(place)
                    return
                except Exception as error:  # a full disk, or a damaged file, which can fail in any way when unpickled
                    _keep_nothing(place, error)
            self._compiled = self._compile(None)

    def _compile(self, place: Path | None) -> Callable[..., Any]:
        import numba

        config: Any = numba.config
        keep = place is not None
        before, config.CACHE_DIR = config.CACHE_DIR, str(place) if keep else config.CACHE_DIR
        try:
            jit: Any = numba.njit(self.signature, nogil=True, cache=keep, boundscheck=False)
            compiled: Callable[..., Any] = jit(self.function)
            return compiled
        finally:
            config.CACHE_DIR = before


_KERNELS: list[Kernel] = []
_SETTINGS = threading.RLock()
"""Lock over numba's cache setting, which is global to the process."""


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    def register(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signature)
        _KERNELS.append(made)
        return made

    return register


def prepare(*, say: Callable[[str], None] | None = None) -> float:
    """Compile every kernel that is not in the cache; return the seconds spent, 0.0 if there was nothing to do.

    Does nothing without a cache: each kernel is then compiled when it is called. `say` is called with a line before
    work begins. Two processes that do this at once do the work twice, with the same result.
    """
    # Importing the modules registers their kernels.
    from penstock.record.kernels import (  # noqa: F401
        block_kernels,
        column_kernels,
        frame_kernels,
        stream_kernels,
        tally_kernels,
        text_kernels,
    )

    with _SETTINGS:
        place = directory()
        if place is None or all(made.loaded for made in _KERNELS) or is_complete():
            return 0.0
        (say or _say)(f"penstock: compiling kernels for this machine, once, into {place} ...")
        began = time.monotonic()
        for made in _KERNELS:
            made.load()
            if directory() is None:
                return time.monotonic() - began
        (place / _COMPLETE).touch()
        return time.monotonic() - began


def is_complete() -> bool:
    """Return True if every kernel is in the cache, compiled for this machine."""
    place = directory()
    return place is not None and (place / _COMPLETE).exists()


def load_all() -> None:
    """Load every kernel, so that no later call pays for it."""
    prepare()
    for made in _KERNELS:
        made.load()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_chosen: list[Path | None] = []


def directory() -> Path | None:
    """Return the directory where compiled kernels are stored; None if there is no usable one."""
    with _SETTINGS:
        if not _chosen:
            _chosen.append(_choose())
        return _chosen[0]


def _keep_nothing(place: Path, error: Exception) -> None:
    _chosen[:] = [None]
    _say(f"penstock: the kernel cache {place} cannot be used ({error!r}): {_FOR_ITSELF}")


def _choose() -> Path | None:
    try:
        wanted = _wanted() / _fingerprint()
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                return wanted
        except OSError:
            if not (wanted / _COMPLETE).exists():
                raise
            return _private_copy(wanted)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        _say(f"penstock: no kernel cache can be written ({error}): {_FOR_ITSELF}; set {ENVIRONMENT} to keep them")
        return None


def _wanted() -> Path:
    given = os.environ.get(ENVIRONMENT)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "penstock" / "kernels"


def _fingerprint() -> str:
    """Return the name of the cache's directory: a hash of the sources, their path, compiler, interpreter and processor.

    A change of any of them gives another directory, so outdated code is never loaded.
    """
    import numba
    from numba.core.registry import cpu_target

    processor = cpu_target.target_context.codegen().magic_tuple()
    about = (numba.__version__, sys.version_info[:2], processor, str(Path(__file__).parent))
    digest = hashlib.sha256(repr(about).encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _private_copy(readonly: Path) -> Path:
    """Copy a read-only cache to a temporary directory and return that; numba reads only a cache that it can write to.

    The files get new modes, since the original ones may forbid writing. The directory is removed when the process ends.
    """
    private = Path(tempfile.mkdtemp(prefix="penstock-kernels-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    for file in readonly.rglob("*"):
        if file.is_file():
            copied = private / file.relative_to(readonly)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
    return private
