"""A context manager that makes the import of many modules faster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disable the garbage collector in the context. Imports create hundreds of thousands of objects and hardly any
    garbage, so collecting would only cost time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
