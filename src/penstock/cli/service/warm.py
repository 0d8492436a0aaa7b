"""`penstock warm`: do slow work that is needed once per machine in advance, such as in the build of an image."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.output import print_json
from penstock.core.errors import StorageFailed


def warm(
    spark: Annotated[
        bool, typer.Option("--spark", help="Keep Spark's loaded classes too: it then starts in half the time.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Compile the kernels now, so that nothing waits for it later.

    Use it when you build an image. Set PENSTOCK_KERNEL_CACHE to choose where they are kept; the directory may be
    read-only afterwards. With --spark, Spark runs once, for about half a minute, and what its JVM has loaded is kept in
    PENSTOCK_SPARK_CACHE.

    Examples: `PENSTOCK_KERNEL_CACHE=/opt/kernels penstock warm`, `penstock warm --spark`
    """
    from penstock.record.kernels import block_kernels, kernel_cache  # noqa: F401 - importing the kernels registers them

    seconds = kernel_cache.prepare() if kernel_cache.directory() is not None else 0.0
    directory = kernel_cache.directory()
    if directory is None:
        raise StorageFailed(f"the kernels are kept nowhere: set {kernel_cache.ENVIRONMENT} to a directory to keep them")
    facts: dict[str, Any] = {"directory": str(directory), "compiled": bool(seconds), "seconds": round(seconds, 3)}
    if not json:
        typer.echo(f"kernels {f'compiled in {seconds:.1f} s' if seconds else 'already there'}: {directory}")
    if spark:
        facts["spark"] = _warm_spark(quiet=json)
    if json:
        print_json(facts)


def _warm_spark(*, quiet: bool) -> str | None:
    from penstock.spark.runtime import classes, home, java

    found_java = java.find()
    directory = home.prepare(found_java)
    kept: Any = classes.archive_path(directory)
    if not kept.exists():
        kept = classes.train(found_java, directory)
    if not quiet:
        typer.echo(f"Spark's classes: {kept or f'Java {found_java.version} has nothing to build an archive on'}")
    return None if kept is None else str(kept)
