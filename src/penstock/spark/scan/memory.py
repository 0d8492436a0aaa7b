"""Memory for batches, from Arrow's pool.

The pool keeps what is given back. Fresh pages from the system, which large arrays of numpy are made of each time, cost
more than all that is done with them here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa


def allocate(*shape: int, kind: Any = np.uint8) -> Any:
    """An array of that shape, with anything in it."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if not size:
        return np.empty(shape, dtype=kind)
    return np.frombuffer(pa.allocate_buffer(size), dtype=kind).reshape(shape)
