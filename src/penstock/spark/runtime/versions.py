"""The supported releases of PySpark, and all differences between them: only this module checks the release.

Several releases are supported because hosted platforms are a release or two behind. If a release lacks a feature, the
request for it is refused by name. A release that was not tested is refused when a session starts, not in a worker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import InvalidRequest, ServiceUnavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

SUPPORTED: Final = ((4, 0), (4, 1), (4, 2), (4, 3))
"""Releases tested by `./dev sparks`."""

_ZONES: Final = (4, 2)
"""First release in which the conversion of a schema to Arrow takes the name of a time zone. Before, it took a flag for
UTC."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of Python data sources that PySpark has since the release `since`. `instead` is the advice for older
    releases."""

    what: str
    since: tuple[int, int]
    instead: str

    @property
    def is_available(self) -> bool:
        return release() >= self.since

    def require(self) -> None:
        """Raise `InvalidRequest` if the installed PySpark lacks this feature."""
        if not self.is_available:
            raise InvalidRequest(
                f"{self.what} needs PySpark {_text(self.since)} or newer, and this is {installed()}: {self.instead}"
            )


FILTERS: Final = Feature("pushdown", (4, 1), "give the conditions with the option where")
ARROW_STREAMS: Final = Feature("a stream written as Arrow batches", (4, 1), "rows are taken one by one")
LIMITS: Final = Feature(
    "maxOffsetsPerTrigger, or maxBytesPerTrigger,", (4, 2), "leave it out, and a batch is all that is there"
)


def installed() -> str:
    """Return PySpark's version, such as `4.3.0`. Raises `ServiceUnavailable` if it is not installed."""
    try:
        from pyspark import __version__
    except ModuleNotFoundError:
        raise ServiceUnavailable("Spark is not installed: pip install 'penstock[spark]'") from None
    return __version__


def release() -> tuple[int, int]:
    """Return the first two numbers of PySpark's version: (4, 3) for `4.3.0` and for `4.3.0.dev1`."""
    match = re.match(r"(\d+)\.(\d+)", installed())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def check() -> None:
    """Raise `ServiceUnavailable`, with the supported releases, if the installed PySpark is not one of them."""
    if release() not in SUPPORTED:
        *others, newest = map(_text, SUPPORTED)
        raise ServiceUnavailable(
            f"Penstock works with PySpark {', '.join(others)} and {newest}, and {installed()} is installed:"
            f" pip install 'pyspark=={newest}.*'"
        )


def _text(number: tuple[int, int]) -> str:
    return ".".join(map(str, number))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema for a schema of Spark, in the types that Spark expects from a worker, with times in
    UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zone: dict[str, Any] = {"timezone": "UTC"} if release() >= _ZONES else {"timestamp_utc": True}
    return to_arrow_schema(schema, **zone)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of Spark for an Arrow schema; a time without a zone stays without one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def spark_type(kind: pa.DataType) -> DataType:
    """Return the type of Spark for an Arrow type; a time without a zone stays without one."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)
