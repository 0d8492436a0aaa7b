"""The driver of `test_standalone.py`: a process that knows the cluster's address, and everything else from options.

Run as `python -m tests.spark.cluster_driver PLAN`, a file of JSON; prints its results as JSON, one object a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock.spark
from penstock.cli.app import run


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def summary(frame: Any) -> list[list[Any]]:
    """Return an aggregate that every row contributes to, through a shuffle."""
    query = "select type, count(*), sum(length(value)), sum(offset) from {frame} group by type order by type"
    return [list(row) for row in frame.sparkSession.sql(query, frame=frame).collect()]


def read(plan: dict[str, Any]) -> None:
    spark = penstock.spark.session("cluster", master=plan["master"], config=plan["config"])
    for way, options in plan["sources"].items():
        say(batch=way, rows=summary(spark.read.format("penstock").options(**options).load()))
    written = f"{plan['folder']}/streamed"
    stream = spark.readStream.format("penstock").options(**plan["sources"]["url"], startingOffsets="earliest").load()
    query = stream.writeStream.format("parquet").option("checkpointLocation", f"{plan['folder']}/checkpoints/stream")
    query.trigger(availableNow=True).start(written).awaitTermination()
    say(stream=summary(spark.read.parquet(written)))
    rows = spark.range(0, 1000, numPartitions=4).selectExpr("cast(id as string) as value")
    rows.write.format("penstock").mode("append").options(**plan["sink"]).save()
    say(written=1000)
    spark.stop()


def main(plan: dict[str, Any]) -> None:
    read(plan)
    for command in plan["commands"]:
        say(command=command[0])
        say(ended=command[0], code=run(command))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
