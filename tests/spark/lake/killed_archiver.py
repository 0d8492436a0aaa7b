"""Processes that archive and may be killed at any moment, without Spark.

Each line of standard input is one: a JSON list of the data, the lake, the kind, the checkpoint and a failpoint. It
archives all that is there, a bounded number of offsets a batch, as Spark would: offsets are decided and logged first, a
batch that was begun is repeated as it was. Its process id comes first as an answer, then how it ended, and why.

All are forked from one process that has imported everything and used none of it: they start at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryAt
from penstock.spark.lake.batching import Archiver, Goal
from penstock.spark.lake.checkpoint import Checkpoint
from penstock.spark.lake.landing import Job, Landed, land
from penstock.spark.runtime import failpoints
from penstock.spark.scan.slices import plan

OFFSETS_MAX: Final = 40


def main(data: str, lake: str, kind: str, checkpoint: str) -> None:
    location = Location(data)
    goal = Goal(warehouse=lake, kind=kind, registry=RegistryAt(location))
    with Checkpoint(Path(checkpoint)) as held:
        archiver = Archiver(goal, held, held.query_id(), _here)
        archiver.sweep(["default.orders", "default.orders__bad", "shop.parts_sold", "shop.parts_sold__bad"])
        offsets, commits = (held.query / name for name in ("offsets", "commits"))
        offsets.mkdir(exist_ok=True)
        commits.mkdir(exist_ok=True)
        while True:
            batch_id = len(list(commits.iterdir()))
            log = offsets / str(batch_id)
            if not log.exists():
                before = json.loads((offsets / str(batch_id - 1)).read_text())["ends"] if batch_id else {}
                ranges = _next(location, before)
                if not ranges:
                    return
                ends = before | {key: stop for key, (_, stop) in ranges.items()}
                temporary = held.query / "new"
                temporary.write_text(json.dumps({"ranges": ranges, "ends": ends}))
                temporary.replace(log)
            archiver.batch(batch_id, plan(location, _keyed(json.loads(log.read_text())["ranges"])))
            (commits / str(batch_id)).touch()


def _here(jobs: Sequence[Job]) -> list[Landed]:
    return [land(job) for job in jobs]


def _next(location: Location, before: dict[str, int]) -> dict[str, tuple[int, int]]:
    found = {}
    for topic in location.open().topics():
        for number in topic.logs:
            key, view = f"{topic.name}:{number}", topic.partition(number).view
            start = before.get(key, int(view.first_offset))
            stop = min(int(view.next_offset), start + OFFSETS_MAX)
            if start < stop:
                found[key] = (start, stop)
    return found


def _keyed(ranges: dict[str, list[int]]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(key.rpartition(":")[0], int(key.rpartition(":")[2])): (low, high) for key, (low, high) in ranges.items()}


def live(given: list[str]) -> NoReturn:
    """In a process of its own."""
    *arguments, failpoint = given
    failpoints.arm(failpoint)
    try:
        main(*arguments)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def serve() -> None:
    """Kills are told of as Python does: the negative number of the signal."""
    print("ready", flush=True)
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writing, 2)
            live(json.loads(line))
        os.close(writing)
        print(child, flush=True)
        said = b"".join(iter(lambda handle=reading: os.read(handle, 65536), b"")).decode()  # type: ignore[misc]
        os.close(reading)
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), said]), flush=True)


if __name__ == "__main__":
    import deltalake  # noqa: F401
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    import penstock.spark.lake.delta
    import penstock.spark.lake.iceberg
    import penstock.spark.lake.parquet  # noqa: F401

    serve()
