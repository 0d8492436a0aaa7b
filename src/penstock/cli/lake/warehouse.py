"""Options of the commands about the lakehouse: where the tables and the log are, and the format of the tables."""

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
"""The most tables named in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess:
    """The options for the format of tables, and for access to their object store and catalog."""

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
        """Check the options. Raises `InvalidRequest` for an unknown format, and for options that do not apply to this
        warehouse."""
        from penstock.spark.lake.tables.folder import Folder
        from penstock.spark.lake.tables.table_factory import check_table_format

        check_table_format(self.format)
        Folder.parse(warehouse, self.storage_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseOptions(TableAccess):
    """The options for the warehouse of the tables."""

    warehouse: Annotated[
        str,
        typer.Option("--warehouse", "-w", envvar="PENSTOCK_WAREHOUSE", help="A directory, or s3://..., gs://, az://."),
    ] = "penstock-lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(WarehouseOptions):
    """The options for existing tables, of any format."""

    format: Annotated[
        str, typer.Option("--format", "-f", help="delta, iceberg or parquet. Default: whatever is there.")
    ] = ANY_FORMAT

    def tables(self, names: list[str] | None) -> list[LakeTable]:
        """Return the named tables; without names all tables. Raises `InvalidRequest` for a table that does not
        exist."""
        known = self._all_tables()
        if not names:
            return list(known.values())
        full = {name: ".".join(self._name_parts(name)) for name in names}
        for name in full.values():
            if name not in known:
                there = ", ".join(sorted(known)[:_NAMED_MAX]) or "none"
                raise InvalidRequest(f"there is no table {name} in {self.warehouse}; there are: {there}", table=name)
        return [known[name] for name in full.values()]

    def _all_tables(self) -> dict[str, LakeTable]:
        """Return all tables of the chosen formats, by name."""
        from penstock.spark.lake import open_table, table_names

        reach: Any = {"storage_options": self.storage_options, "catalog": self.catalog_options}
        return {
            name: open_table(kind, self.warehouse, name, **reach)
            for kind in self._formats()
            for name in table_names(kind, self.warehouse, **reach)
        }

    def _formats(self) -> list[str]:
        """Return the formats to look for: the one that was given, or those in the warehouse. Raises `InvalidRequest` if
        the given one has no table, but others have."""
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
        return [kind for kind in there if kind == self.format]

    @staticmethod
    def _name_parts(name: str) -> tuple[str, ...]:
        from penstock.spark.lake.tables.names import parse_table_name

        return tuple(parse_table_name(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options for the log: a data directory, or the HTTP address of a broker."""

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


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse the `name=value` texts of a repeated option to a dict. Raises `InvalidRequest` for a text of another
    form."""
    values: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{option} {text!r}: expected name=value", given=text)
        values[name] = value
    return values


def directory(path: Path | None) -> str | None:
    return None if path is None else str(path.expanduser().absolute())
