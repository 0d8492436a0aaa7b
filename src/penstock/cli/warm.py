"""`penstock warm`: compile the kernels ahead of time, for images."""

from __future__ import annotations

import typer

from penstock.cli import options as opt
from penstock.cli.output import print_json
from penstock.core.errors import StorageFailed


def warm(json: opt.Json = False) -> None:
    """Compile the kernels now, so that nothing waits for it later.

    Use it when you build an image. Set PENSTOCK_KERNEL_CACHE to choose where they are kept; the directory may be
    read-only afterwards.

    Example: `PENSTOCK_KERNEL_CACHE=/opt/kernels penstock warm`
    """
    from penstock.record import kernel_cache, kernels  # noqa: F401 - importing the kernels is what registers them

    seconds = kernel_cache.prepare() if kernel_cache.directory() is not None else 0.0
    place = kernel_cache.directory()
    if place is None:
        raise StorageFailed(f"the kernels are kept nowhere: set {kernel_cache.ENVIRONMENT} to a directory to keep them")
    if json:
        print_json({"directory": str(place), "compiled": bool(seconds), "seconds": round(seconds, 3)})
    else:
        typer.echo(f"kernels {f'compiled in {seconds:.1f} s' if seconds else 'already there'}: {place}")
