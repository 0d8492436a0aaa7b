"""Imports of many modules at once, without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disable the garbage collector while modules are imported: they leave hundreds of thousands of objects to search,
    and no garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
