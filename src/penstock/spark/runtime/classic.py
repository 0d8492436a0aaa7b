"""Classic sessions, whose driver is this process: jobs need one to run work in Python workers. A Spark Connect session,
whose driver is elsewhere, offers only DataFrames and streams."""

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
"""Environment variable that PySpark sets once the process has made a Spark Connect session. From then on all its
sessions are of that kind."""
_CONNECT: Final = "pyspark.sql.connect."
_INSTEAD: Final = (
    "Audits, other jobs, pipelines and commands need a classic session, whose driver is here: unset SPARK_REMOTE,"
    " spark.remote and spark.api.mode, and name the cluster with --master, SPARK_MASTER or"
    " penstock.spark.session(master=...). Topics can be read and written over Spark Connect with a session of its own"
    ' builder, as format("penstock")'
)


def check(config: Mapping[str, str]) -> None:
    """Raise `InvalidRequest` if the configuration or the environment asks for Spark Connect."""
    settings = {
        REMOTE: os.environ.get(REMOTE),
        "spark.remote": config.get("spark.remote"),
        _ENABLED: os.environ.get(_ENABLED),
        "SPARK_API_MODE": _if_connect(os.environ.get("SPARK_API_MODE")),
        "spark.api.mode": _if_connect(config.get("spark.api.mode")),
    }
    for name, value in settings.items():
        if value:
            raise InvalidRequest(f"{name} is {value}, which asks for Spark Connect. {_INSTEAD}", setting=name)


def _if_connect(mode: str | None) -> str | None:
    return mode if (mode or "").lower() == "connect" else None


def context(spark: SparkSession) -> SparkContext:
    """Return the context of a classic session. Raises `InvalidRequest` for a Spark Connect session, which has none."""
    if type(spark).__module__.startswith(_CONNECT):
        raise InvalidRequest(f"this is a session of Spark Connect. {_INSTEAD}")
    return spark.sparkContext
