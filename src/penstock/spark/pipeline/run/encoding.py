"""Rows as messages: the columns that the sink knows stay, and the others become a JSON document in `value`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import InvalidRequest
from penstock.spark.pipeline.file.model import Encode, ToTopic
from penstock.spark.sink.columns import ACCEPTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def messages(frame: DataFrame, to: ToTopic) -> DataFrame:
    """Return the rows with the columns of messages; unchanged without an encoding.

    Raises `InvalidRequest` for JSON if there is a column `value` already, or no column to encode.
    """
    if to.encode is Encode.NONE:
        return frame
    from pyspark.sql import functions as f

    if "value" in frame.columns:
        raise InvalidRequest(
            'encode = "json" makes the column value, and there is one already: rename it, or leave out encode'
        )
    content = [name for name in frame.columns if name not in ACCEPTED]
    if not content:
        raise InvalidRequest(f'encode = "json": there is no column to encode beside {", ".join(frame.columns)}')
    kept = [f.col(f"`{name}`") for name in frame.columns if name in ACCEPTED]
    return frame.select(*kept, f.to_json(f.struct(*(f.col(f"`{name}`") for name in content))).alias("value"))
