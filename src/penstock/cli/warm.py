"""`penstock warm`: compile the kernels ahead of time, for images."""

from __future__ import annotations

import typer


def warm() -> None:
    """Compile the kernels now, so that nothing waits for it later.

    Use it when you build an image. Set PENSTOCK_KERNEL_CACHE to choose where they are kept; the directory may be
    read-only afterwards.

    Example: `PENSTOCK_KERNEL_CACHE=/opt/kernels penstock warm`
    """
    from penstock.record import kernel_cache, kernels  # noqa: F401 - importing the kernels is what registers them

    seconds = kernel_cache.prepare()
    state = f"compiled in {seconds:.1f} s" if seconds else "already there"
    typer.echo(f"kernels {state}: {kernel_cache.directory()}")
