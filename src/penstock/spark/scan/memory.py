"""Memory for batches, from Arrow's pool.

The pool keeps freed memory. Large numpy arrays get fresh pages from the system each time, and these cost more than all
the work that is done on them here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa


def allocate(*shape: int, kind: Any = np.uint8) -> Any:
    """Return an uninitialised numpy array of that shape, in Arrow's memory; `kind` is its dtype."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if not size:
        return np.empty(shape, dtype=kind)
    return np.frombuffer(pa.allocate_buffer(size), dtype=kind).reshape(shape)
