"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    # Whether it can be read is asked when it is: a file may be verified wherever the variable points to.
    typer.Option("--data", "-d", envvar="PENSTOCK_DATA", help="The data directory.", readable=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]
From = Annotated[
    str, typer.Option("--from", help="Start: earliest, latest, an offset, a time (ISO 8601), or a message id.")
]
To = Annotated[
    str | None, typer.Option("--to", help="Stop before: an offset, a time, or a message id. Default: the end.")
]
TypeGlob = Annotated[str | None, typer.Option("--type", help="Only types that match this glob, such as 'order.*'.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many messages.")]

DEFAULT_DATA = Path("penstock-data")
EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_COULD_NOT = 2
