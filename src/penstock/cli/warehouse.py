"""Where the tables of the lake are: options that its commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import many
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.spark.files.location import Location
    from penstock.spark.lake import LakeTable


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

    def check(self) -> None:
        """Raises `InvalidRequest` for a format that there is not."""
        from penstock.spark.lake.opening import check_kind

        check_kind(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse(Reach):
    """Which tables."""

    warehouse: Annotated[
        str,
        typer.Option("--warehouse", "-w", envvar="PENSTOCK_WAREHOUSE", help="A directory, or s3://..., gs://, az://."),
    ] = "penstock-lake"

    def open(self, name: str) -> LakeTable:
        from penstock.spark.lake import open_table

        return open_table(
            self.format,
            self.warehouse,
            name,
            storage_options=self.storage_options,
            catalog=self.catalog_options,
        )

    def tables(self, names: list[str] | None) -> list[LakeTable]:
        """Those that are named, or all there are. Raises `InvalidRequest` for one that is not there."""
        from penstock.spark.lake import table_names

        known = table_names(
            self.format, self.warehouse, storage_options=self.storage_options, catalog=self.catalog_options
        )
        if not known:
            self._check_others()
        found = [self.open(each) for each in names or known]
        for table in found:
            if not table.exists():
                there = ", ".join(known[:10]) or "none"
                raise InvalidRequest(
                    f"there is no {self.format} table {table.name} in {self.warehouse}; there are: {there}",
                    table=table.name,
                )
        return found

    def _check_others(self) -> None:
        """Raises `InvalidRequest` where there are tables, but none of this format."""
        from penstock.spark.lake.opening import other_tables

        others = other_tables(self.format, self.warehouse, storage_options=self.storage_options)
        for kind, names in others.items():
            raise InvalidRequest(
                f"there are no {self.format} tables in {self.warehouse}, but {many(len(names), 'table')} of the format"
                f" {kind} ({', '.join(names[:3])}): give --format {kind}",
                format=kind,
            )


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
