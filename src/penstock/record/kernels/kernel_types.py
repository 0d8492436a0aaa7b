"""Types of the kernels' arguments, and the decorator of functions that are inlined into kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit
from numba import types as numba_types

types: Any = numba_types
_Function = TypeVar("_Function", bound=Callable[..., Any])

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BUFFER = types.Array(types.uint8, 1, "C")
LONGS = types.Array(types.int64, 1, "C", readonly=True)
LONGS_OUT = types.Array(types.int64, 1, "C")
INTS_OUT = types.Array(types.int32, 1, "C")
WORDS = types.Array(types.uint64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")
TABLE_IN = types.Array(types.int64, 2, "C", readonly=True)
LONG = types.int64


def inlined(function: _Function) -> _Function:
    """Mark a function that is compiled into the kernel that calls it."""
    return njit(forceinline=True, boundscheck=False)(function)  # type: ignore[return-value]
