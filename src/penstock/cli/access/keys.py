"""`penstock key`: keys that authenticate clients. The key itself is shown only once, when it is created."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.access.target import DataDirectory, ask_access
from penstock.cli.output import many, print_json, table, time_text
from penstock.core.errors import InvalidRequest
from penstock.core.units import parse_duration_ms

app = typer.Typer(help="Keys by which clients say who they are: create, ls, revoke.", no_args_is_help=True)

Out = Annotated[
    Path | None,
    typer.Option(help="Write the key to this new file, readable by its owner alone, instead of printing it."),
]
Role = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        "-r",
        help="ROLE, or ROLE@SCOPE such as publisher@topic:orders.#; may be repeated. Without a scope: everywhere.",
    ),
]
Expires = Annotated[
    str | None, typer.Option("--expires", help="Good for so long, such as 90d. Default: until revoked.")
]


@app.command()
@opt.bundled
def create(
    broker: opt.BrokerOptions,
    name: Annotated[str, typer.Argument(help="Who it is for: the principal is key:NAME.")],
    role: Role = None,
    expires: Expires = None,
    data: DataDirectory = None,
    out: Out = None,
    json: opt.Json = False,
) -> None:
    """Create a key and print it: the only time that it can be seen.

    A second key of the same name is good beside the first, with the same roles: that is how one is replaced. Where no
    key of the name is good any more, the new one has the roles given here alone.

    Examples:

    `penstock key create root --role admin --data penstock-data`

    `penstock key create shop --role publisher@topic:/shop/orders.# --expires 90d --out shop.key`
    """
    fields: dict[str, Any] = {"name": name, "bindings": role or []}
    if expires is not None:
        fields["expires_ms"] = int(time.time() * 1000) + parse_duration_ms(expires)
    if out is not None and out.exists():
        raise InvalidRequest(f"{out} exists, and a key overwrites nothing", given=str(out))
    facts = ask_access(broker, data, "system.key.create", fields)
    if out is not None:
        _write(out, facts.pop("key"))
    if json:
        print_json(facts)
        return
    if out is None:
        typer.echo(facts["key"])
    roles = ", ".join(facts["bindings"]) or "no roles yet: `penstock access grant`"
    until = f", until {time_text(facts['expires_ms'])}" if "expires_ms" in facts else ""
    where = "shown this once" if out is None else f"in {out}"
    sys.stderr.write(f"penstock: key {facts['key_id']} of {facts['principal']} ({roles}){until}: {where}\n")


def _write(path: Path, key: str) -> None:
    """Write a file that only its owner can read, also while it is being written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{key}\n")


@app.command("ls")
@opt.bundled
def ls(broker: opt.BrokerOptions, data: DataDirectory = None, json: opt.Json = False) -> None:
    """List keys, revoked ones too. The keys themselves are stored nowhere.

    Examples:

    `penstock key ls`

    `penstock key ls --data penstock-data --json`
    """
    answer = ask_access(broker, data, "system.key.list", {})
    keys = answer["keys"]
    if json:
        for facts in keys:
            print_json(facts)
    elif not keys:
        typer.echo("no keys yet: penstock key create NAME --role ROLE")
    else:
        columns = ("id", "name", "created", "expires", "state")
        table("keys", columns, [_row(facts) for facts in keys])
    if answer.get("truncated"):
        sys.stderr.write(f"penstock: {len(keys)} of {answer['total']:,} are shown\n")


def _row(facts: dict[str, Any]) -> list[Any]:
    expires, revoked = facts.get("expires_ms"), facts.get("revoked_ms")
    over = expires is not None and expires <= time.time() * 1000
    state = f"revoked {time_text(revoked)}" if revoked is not None else "expired" if over else "good"
    shown = time_text(expires) if expires is not None else "never"
    return [facts["key_id"], facts["name"], time_text(facts["created_ms"]), shown, state]


@app.command()
@opt.bundled
def revoke(
    broker: opt.BrokerOptions,
    key: Annotated[str, typer.Argument(help="Its id; or a name, for all keys of that name.")],
    data: DataDirectory = None,
    json: opt.Json = False,
) -> None:
    """Revoke a key. Connections that were opened with it are closed within a second.

    With the last good key of a name its roles go too: a later key of that name has only what it is given.

    Examples:

    `penstock key revoke shop`

    `penstock key revoke 7q2m4kd5a3xyz --data penstock-data`
    """
    answer = ask_access(broker, data, "system.key.revoke", {"key": key})
    if json:
        print_json(answer)
    else:
        typer.echo(f"revoked {many(len(answer['revoked']), 'key')}: {', '.join(answer['revoked'])}")
