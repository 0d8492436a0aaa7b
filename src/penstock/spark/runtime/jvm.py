"""The start of the JVM for Spark's driver. Spark's launcher, with its shell scripts and a second JVM, is not used.

The JVM ends when this process ends, even if it is killed: the JVM reads from a pipe that this process holds open.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import ServiceUnavailable
from penstock.spark.runtime import classes
from penstock.spark.runtime.home import SparkHome
from penstock.spark.runtime.java import Java

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02
_ERRORS: Final = 2
"""File descriptor of standard error."""

_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""Packages that Spark's own launcher opens, except for the vector module, which only its linear algebra would use."""

_OPENED_UNTIL_23: Final = ("java.base/sun.security.action",)
"""Packages to be opened only before Java 24: newer ones do not have them, and print a warning."""

_JVM_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-XX:+UseParallelGC",
    "-Xss4m",
    "-Darrow.enable_null_check_for_get=false",
    "-Darrow.enable_unsafe_memory_access=true",
)
"""Options of the JVM.

- `UseParallelGC`: the most rows a second on few cores; pauses do not matter to a batch job.
- `Xss4m`, deep stacks: Spark searches the output of a stopped query's Python with a regular expression, which makes
  some nested calls for each character.
- The options of Arrow switch off two checks of every value, that it is not null and that it lies in its column. Spark
  and pyarrow have ensured both before. The checks take a fifth of the time of a row."""

QUICK: Final = "SPARK_QUICK"
"""Environment variable that makes every session of the process a quick one (see `session`). Tests set it for the
commands that they start."""

_QUICK: Final = ("-XX:TieredStopAtLevel=1",)
"""Options of a quick session. Only the JVM's quick compiler is used: the first result takes half the time, but after
that half as many rows a second are processed."""


@dataclass(slots=True)
class Gateway:
    """A JVM that was started and waits for the driver to connect, at `port` of this machine and with `secret`."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def close(self) -> None:
        """Tell the JVM to end, wait up to 30 seconds, then kill it. May be called again."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def offered_to_pyspark(self) -> Iterator[None]:
        """Set, within the block, the environment variables that make PySpark use this JVM instead of starting one."""
        variables = {"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                os.environ.pop(name, None)


def command(java: Java, home: SparkHome, config: Mapping[str, str], properties: Path, *, quick: bool) -> list[str]:
    """Return the command line of the driver's JVM. `properties` is the file with Spark's settings. They are in a file
    because other users can see a command line."""
    opened = _OPENED + (_OPENED_UNTIL_23 if java.major < 24 else ())
    settings = {**_defaults(home), **config}  # settings that only the JVM's command line can set
    memory = settings.get("spark.driver.memory") or os.environ.get("SPARK_DRIVER_MEMORY") or "1g"
    parts = (str(_settings_directory(home)), f"{home.jars}/*", settings.get("spark.driver.extraClassPath"))
    return [
        str(java.executable),
        f"-Xmx{memory}",
        *_JVM_OPTIONS,
        *(f"--add-opens={package}=ALL-UNNAMED" for package in opened),
        *(_QUICK if quick or os.environ.get(QUICK) else ()),
        *classes.options(java, home),
        f"-Dlog4j2.configurationFile={_log_settings().as_uri()}",
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "-cp",
        os.pathsep.join(filter(None, parts)),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties),
        "--load-spark-defaults",
        "pyspark-shell",
    ]


def _settings_directory(home: SparkHome) -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR", home.spark / "conf"))


def _defaults(home: SparkHome) -> dict[str, str]:
    """Return the settings in the user's `spark-defaults.conf`; empty if there is no such file."""
    try:
        text = (_settings_directory(home) / "spark-defaults.conf").read_text()
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"[\s=]+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def properties(config: Mapping[str, str]) -> str:
    """Return settings in Java's properties format."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in config.items())


def _escaped(text: str) -> str:
    r"""Return the text with every character that is not safe in a properties file written as `\uXXXX`."""
    return "".join(char if re.match(r"[A-Za-z0-9._*\[\]/,@-]", char) else f"\\u{ord(char):04x}" for char in text)


def _log_settings() -> Path:
    return Path(__file__).with_name("log4j2.properties")


def start(java: Java, home: SparkHome, config: Mapping[str, str], *, quick: bool) -> Gateway:
    """Start a JVM and return it once it listens. Raises `ServiceUnavailable` if it ends, or does not listen within two
    minutes."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    try:
        connection, settings = folder / "connection", folder / "properties"
        settings.write_text(properties(config))  # only this user can read the directory
        environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)}
        process = subprocess.Popen(  # noqa: S603 - the Java that was found
            command(java, home, config, settings, quick=quick),
            stdin=subprocess.PIPE,
            stdout=_ERRORS,  # accidental output must not end up in a command's JSON
            env=environment,
            preexec_fn=_ignore_interrupts,  # as PySpark does: Ctrl-C is the driver's to handle
        )
        port, secret = _wait(process, connection)
        return Gateway(process, port, secret)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _wait(process: subprocess.Popen[bytes], connection: Path) -> tuple[int, str]:
    until = time.monotonic() + _START_SECONDS
    while not connection.exists():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            code = process.wait()
            raise ServiceUnavailable(f"Spark's JVM did not start (exit code {code}); what it said stands above")
        time.sleep(_POLL_SECONDS)
    return _connection(connection.read_bytes())


def _connection(data: bytes) -> tuple[int, str]:
    """Return the port and the secret of a connection file: four bytes with the port, four with the length of the
    secret, then the secret."""
    size = int.from_bytes(data[4:8], "big")
    return int.from_bytes(data[:4], "big"), data[8 : 8 + size].decode()
