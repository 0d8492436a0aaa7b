"""Classic sessions, whose driver is this process. Jobs hand their work to Python workers through it; of a session of
Spark Connect, whose driver is elsewhere, only DataFrames and streams can be had."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

REMOTE: Final = "SPARK_REMOTE"
_ENABLED: Final = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark sets it in a process that has made a session of Spark Connect: all further ones are such."""
_CONNECT: Final = "pyspark.sql.connect."
_INSTEAD: Final = (
    "Audits, other jobs, pipelines and commands need a classic session, whose driver is here: unset SPARK_REMOTE,"
    " spark.remote and spark.api.mode, and name the cluster with --master, SPARK_MASTER or"
    " penstock.spark.session(master=...). Topics can be read and written over Spark Connect with a session of its own"
    ' builder, as format("penstock")'
)


def check(config: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` where the configuration or the environment ask for Spark Connect."""
    said = {
        REMOTE: os.environ.get(REMOTE),
        "spark.remote": config.get("spark.remote"),
        _ENABLED: os.environ.get(_ENABLED),
        "SPARK_API_MODE": _if_connect(os.environ.get("SPARK_API_MODE")),
        "spark.api.mode": _if_connect(config.get("spark.api.mode")),
    }
    for name, value in said.items():
        if value:
            raise InvalidRequest(f"{name} is {value}, which asks for Spark Connect. {_INSTEAD}", setting=name)


def _if_connect(mode: str | None) -> str | None:
    return mode if (mode or "").lower() == "connect" else None


def context(spark: SparkSession) -> SparkContext:
    """The driver's side of a session. Raises `InvalidRequest` for a session of Spark Connect."""
    if type(spark).__module__.startswith(_CONNECT):
        raise InvalidRequest(f"this is a session of Spark Connect. {_INSTEAD}")
    return spark.sparkContext
