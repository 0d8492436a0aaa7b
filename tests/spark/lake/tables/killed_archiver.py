"""Processes that archive and may be killed at any moment, without Spark.

Each line of standard input starts one: a JSON list of the data, the lake, the table format, the checkpoint and a
failpoint. It archives all messages, a few in a batch. The answer is its process id, then how it ended, and why.

All are forked from one process that has imported everything and used none of it: they start at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Final, NoReturn

from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.lake.archive.batch_commit import Destination
from penstock.spark.lake.archive.engines import LOCAL_ENGINE
from penstock.spark.lake.archive.run import ArchiveRequest, open_archive
from penstock.spark.runtime import failpoints

BATCH_BYTES: Final = 8_000
"""Log bytes of about forty messages."""


def main(data: str, lake: str, table_format: str, checkpoint: str) -> None:
    location = Location(data)
    destination = Destination(warehouse=lake, table_format=table_format, registry=RegistryLocation(location))
    wanted = ArchiveRequest(
        location=location, destination=destination, checkpoint=Path(checkpoint), once=True, batch_bytes=BATCH_BYTES
    )
    with open_archive(wanted) as archive:
        archive.run(LOCAL_ENGINE, threading.Event())


def live(given: list[str]) -> NoReturn:
    """Run an archive in a process of its own."""
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
    """Run archives and report their exit codes, a kill as Python does: the negative number of the signal."""
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

    import penstock.spark.lake.tables.delta
    import penstock.spark.lake.tables.iceberg
    import penstock.spark.lake.tables.parquet  # noqa: F401

    serve()
