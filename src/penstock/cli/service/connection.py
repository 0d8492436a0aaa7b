"""`penstock connection`: list and close connections of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.output import print_json, table

if TYPE_CHECKING:
    from penstock.client.sync import Client

app = typer.Typer(help="Connections of a broker: list, close.", no_args_is_help=True)


@app.command("ls")
@opt.bundled
def list_(broker: opt.BrokerOptions, json: opt.Json = False) -> None:
    """List connections: from where, who they are, what they listen to, consume and produce.

    Example: `penstock connection ls --json`
    """
    with broker.connect() as client:
        connections = list(_connections(client))
    if json:
        for facts in connections:
            print_json(facts)
        return
    columns = ("id", "address", "name", "principal", "since", "listens", "consumes", "produces", "errors")
    names = ("id", "address", "name", "principal", "connectedAt", "subscriptions", "consumes", "produces", "errors")
    table("connections", columns, [[connection[name] for name in names] for connection in connections])


def _connections(client: Client) -> Iterator[dict[str, Any]]:
    after: dict[str, str] = {}
    while True:
        answer = client.ask("system.connection.list", after)
        yield from answer["connections"]
        if not answer.get("truncated"):
            return
        after = {"after": answer["connections"][-1]["id"]}


@app.command()
@opt.bundled
def close(
    broker: opt.BrokerOptions,
    connection: Annotated[str, typer.Argument(help="Its id, as `penstock connection ls` has it.")],
    reason: Annotated[str | None, typer.Option(help="What it is told.")] = None,
    json: opt.Json = False,
) -> None:
    """End a connection; it is told why. What it consumed goes to others. It may come back.

    Example: `penstock connection close 0a1b2c3d-0000-4000-8000-00000000000a --reason 'too many requests'`
    """
    asked = {"id": connection} | ({} if reason is None else {"reason": reason})
    with broker.connect() as client:
        client.ask("system.connection.close", asked)
    if json:
        print_json({"id": connection, "closed": True})
    else:
        typer.echo(f"connection {connection} was closed")
