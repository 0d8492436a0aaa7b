"""A Spark session that can read and write topics: on this machine by default, on any cluster with `master`."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.core.errors import InvalidRequest
from penstock.spark.runtime import classic, home, java, jvm, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK: Final = "127.0.0.1"
_ON_THIS_MACHINE: Final = re.compile(r"local(-cluster)?(\[.*\])?|spark://(127\.0\.0\.1|localhost):[0-9]+")
_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"
_LATE: Final = "Exception while sending command."
"""Message that Py4J logs to the root logger if the JVM is gone. It is suppressed at the end of the process."""
_MEMORY: Final = re.compile(r"[1-9][0-9]*[kKmMgGtT]?")

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.buffer.size": "1048576",
    # Plans and event logs show options, of object stores too: Spark's own pattern, and what it does not take for one.
    "spark.redaction.regex": (
        "(?i)secret|password|passphrase|token|access[._]?key|account_key|sas_key|encryption_key|customer_key|credential"
        "|service_account_key"
    ),
    "spark.speculation": "false",  # two attempts at a task would take the same producer from each other
    "spark.python.unix.domain.socket.enabled": "true",  # 10 to 20 % quicker between the JVM and Python than TCP
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Hadoop's own local file system starts a `chmod` for every file of a checkpoint, and another for its checksum.
    # `fs.file.impl` cannot be the raw one, too: RocksDB's snapshots ask for the one with checksums, and fail.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    memory: str | None = None,
    quick: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, or start one if there is none. The source and sink `penstock` are
    registered in it.

    `master` is where it runs: this machine with all its cores by default, else this argument or `SPARK_MASTER`.
    `memory` is the driver's (`2g`). `quick` is for tests and short commands: half the time to the first result, half
    the rows a second after that. `config` is Spark's own configuration, and overrides what is set here.

    Raises `InvalidRequest` for invalid arguments, `ServiceUnavailable` if there is no Java, or no supported PySpark, or
    Spark does not start.
    """
    versions.check()
    classic.check(config or {})
    chosen = settings(name, master=master, memory=memory, config=config or {})
    java_found = java.find()
    spark_home = home.prepare(java_found)
    _prepare_environment(chosen["spark.master"], spark_home)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _silence_loggers()
    builder = SparkSession.builder.config(map=dict(chosen))
    started = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001 - no other way
    if started or _foreign_home(spark_home):
        spark = builder.getOrCreate()
    else:
        gateway = jvm.start(java_found, spark_home, chosen, quick=quick)
        atexit.register(_stop, gateway)
        with gateway.offered_to_pyspark():
            spark = builder.getOrCreate()
    register(spark)
    return spark


def _silence_loggers() -> None:
    """Silence loggers of PySpark and Py4J that print a page for each error. The errors are raised anyway."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.CRITICAL)


def _stop(gateway: jvm.Gateway) -> None:
    """Stop the session, then the JVM, at the end of the process. In another order, the rest of the session would print
    errors because the JVM is gone."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context  # noqa: SLF001 - no other way
    if active is not None:
        active.stop()
    _stop_releasing_objects()
    gateway.close()


def _stop_releasing_objects() -> None:
    """Stop Py4J's thread that releases objects in the JVM: it is of no use now, and a release that meets the JVM's end
    would print an error."""
    from pyspark import SparkContext

    SparkContext._gateway._gateway_client.is_connected = False  # type: ignore[union-attr]  # noqa: SLF001 - no other way
    logging.getLogger().addFilter(lambda record: record.msg != _LATE)


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session, which may have been made elsewhere. May be called again."""
    from pyspark.errors import AnalysisException

    from penstock.spark.source.data_source import PenstockSource

    try:
        spark.dataSource.register(PenstockSource)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN:  # Spark 4.0 registers it by itself, and takes no other of that name
            raise


def settings(name: str, *, master: str | None, memory: str | None, config: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's configuration for a session with these arguments, which are those of `session`. Raises
    `InvalidRequest` for `memory` in another form than `2g`."""
    chosen = master or config.get("spark.master") or os.environ.get("SPARK_MASTER") or "local[*]"
    own = {"spark.app.name": name, "spark.master": chosen, **_SETTINGS}
    if memory is not None:
        own["spark.driver.memory"] = _checked_memory(memory)
    if _ON_THIS_MACHINE.fullmatch(chosen):
        own["spark.driver.host"] = own["spark.driver.bindAddress"] = _LOOPBACK
        own["spark.sql.shuffle.partitions"] = str(cores(chosen))  # Spark's default of 200 is for clusters
    return {**own, **config, "spark.master": chosen}


def cores(master: str) -> int:
    """Return how many tasks run at the same time with a master on this machine: the number in `local[4]`, otherwise the
    number of cores."""
    numbers = re.findall(r"\d+", master.partition("[")[2])
    if master.startswith("local-cluster") and len(numbers) >= 2:
        return int(numbers[0]) * int(numbers[1])
    if master == "local":
        return 1
    return int(numbers[0]) if numbers and master.startswith("local[") else max(1, os.cpu_count() or 1)


def _checked_memory(memory: str) -> str:
    if not _MEMORY.fullmatch(memory):
        raise InvalidRequest(f"memory is a number and a unit, such as 2g or 800m, not {memory!r}", given=memory)
    return memory


def _foreign_home(spark_home: home.SparkHome) -> bool:
    """Return True if the user has set SPARK_HOME to a Spark of their own. Then that Spark's scripts must start it."""
    return os.environ.get("SPARK_HOME", str(spark_home.spark)) != str(spark_home.spark)


def _prepare_environment(master: str, spark_home: home.SparkHome) -> None:
    """Set the environment variables that Spark reads. Those that the user has set stay, except JAVA_HOME."""
    os.environ.setdefault("SPARK_HOME", str(spark_home.spark))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(spark_home.java)
    os.environ.setdefault("SPARK_SCALA_VERSION", home.scala_version(spark_home))  # else executors expect a source tree
    if _ON_THIS_MACHINE.fullmatch(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
