"""Where the tables of the lake are: options that its commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.spark.files.location import Location
    from penstock.spark.lake import LakeTable


ANY_FORMAT: Final = "any"
_NAMED_MAX: Final = 10
"""Tables that are named to whoever asks for one that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """In which format tables are, and how to reach them."""

    format: Annotated[str, typer.Option("--format", "-f", help="delta, iceberg or parquet.")] = "delta"
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            help="name=value for the warehouse's object store, such as aws_region=eu-west-1; may be repeated."
        ),
    ] = None
    catalog: Annotated[
        str | None, typer.Option(help="An Iceberg catalog of PyIceberg's own configuration. Default: a file, SQLite.")
    ] = None
    catalog_option: Annotated[
        list[str] | None,
        typer.Option(help="name=value for the Iceberg catalog, such as uri=https://...; may be repeated."),
    ] = None

    @property
    def storage_options(self) -> dict[str, str]:
        return pairs("--storage-option", self.storage_option)

    @property
    def catalog_options(self) -> dict[str, str] | None:
        named = {} if self.catalog is None else {"name": self.catalog}
        return (named | pairs("--catalog-option", self.catalog_option)) or None

    def check(self, warehouse: str) -> None:
        """Raises `InvalidRequest` for a format that there is not, and for options that the warehouse's store has
        not."""
        from penstock.spark.lake.tables.folder import Folder
        from penstock.spark.lake.tables.table_factory import check_table_format

        check_table_format(self.format)
        Folder.parse(warehouse, self.storage_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse(Reach):
    """Which tables."""

    warehouse: Annotated[
        str,
        typer.Option("--warehouse", "-w", envvar="PENSTOCK_WAREHOUSE", help="A directory, or s3://..., gs://, az://."),
    ] = "penstock-lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake(Warehouse):
    """Tables that are there, of whichever format they are."""

    format: Annotated[
        str, typer.Option("--format", "-f", help="delta, iceberg or parquet. Default: whatever is there.")
    ] = ANY_FORMAT

    def tables(self, names: list[str] | None) -> list[LakeTable]:
        """Those that are named, or all there are. Raises `InvalidRequest` for one that is not there."""
        known = self._known()
        if not names:
            return list(known.values())
        full = {each: ".".join(self._parsed(each)) for each in names}
        for name in full.values():
            if name not in known:
                there = ", ".join(sorted(known)[:_NAMED_MAX]) or "none"
                raise InvalidRequest(f"there is no table {name} in {self.warehouse}; there are: {there}", table=name)
        return [known[name] for name in full.values()]

    def _known(self) -> dict[str, LakeTable]:
        """All tables, by their names."""
        from penstock.spark.lake import open_table, table_names

        reach: Any = {"storage_options": self.storage_options, "catalog": self.catalog_options}
        return {
            name: open_table(kind, self.warehouse, name, **reach)
            for kind in self._kinds()
            for name in table_names(kind, self.warehouse, **reach)
        }

    def _kinds(self) -> list[str]:
        """Raises `InvalidRequest` where a format is asked for that no table has, and others have one."""
        from penstock.spark.lake.tables.table_factory import check_table_format, formats_present

        there = formats_present(self.warehouse, storage_options=self.storage_options, catalog=self.catalog_options)
        if self.format == ANY_FORMAT:
            return there
        check_table_format(self.format)
        if there and self.format not in there:
            raise InvalidRequest(
                f"the tables in {self.warehouse} are {' and '.join(there)}, none is {self.format}: leave out --format,"
                f" or say --format {there[0]}",
                given=self.format,
            )
        return [each for each in there if each == self.format]

    @staticmethod
    def _parsed(name: str) -> tuple[str, ...]:
        from penstock.spark.lake.tables.names import parse_table_name

        return tuple(parse_table_name(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Where the log is: its files, or a broker's HTTP."""

    data: Annotated[
        str,
        typer.Option("--data", "-d", envvar="PENSTOCK_DATA", help="The data directory, or an object store's s3://..."),
    ] = "penstock-data"
    url: Annotated[
        str | None, typer.Option("--url", help="Instead: the HTTP address of a broker, http://127.0.0.1:7452.")
    ] = None
    data_option: Annotated[
        list[str] | None, typer.Option(help="name=value for the object store of the data; may be repeated.")
    ] = None

    def location(self) -> Location:
        from penstock.spark.files.location import Location

        options = pairs("--data-option", self.data_option)
        if self.url is not None:
            return Location.parse(url=self.url, storage_options=options)
        return Location.parse(path=self.data, storage_options=options)


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Of `name=value`."""
    found: dict[str, str] = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{option} {each!r}: expected name=value", given=each)
        found[name] = value
    return found


def directory(given: Path | None) -> str | None:
    return None if given is None else str(given.expanduser().absolute())
