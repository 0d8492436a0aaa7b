"""Faster imports of many modules: without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disable the garbage collector while modules are imported: they create hundreds of thousands of objects, and no
    garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
