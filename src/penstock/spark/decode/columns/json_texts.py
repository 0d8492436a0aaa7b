"""Values of any kind as JSON text: for columns of recursive types, and of what has no type that all agree on.

Bytes are base64; numbers that JSON does not have are text (`"NaN"`).
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa

from penstock.spark.decode.columns.shapes import Values


def texts(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else text(each) for each in values], kind)


def text(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A pair is what fastavro has for a branch of a union that has a name: the name does not count."""
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case (_, inner):
            return _plain(inner)
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(value)
    return value
