"""Values of any kind as JSON text: for columns of recursive types, and for types without a common type.

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
    """Return a value that JSON can hold. A pair is fastavro's value of a named union branch: the name is dropped."""
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
