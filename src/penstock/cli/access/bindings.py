"""`penstock access`: roles of principals, and their scopes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.access.target import DataDirectory, ask_access
from penstock.cli.output import print_json, table, time_text

app = typer.Typer(help="Who may what: grant, revoke, show.", no_args_is_help=True)

Principal = Annotated[str, typer.Argument(help="key:NAME, jwt:SUBJECT or certificate:NAME")]
Bindings = Annotated[
    list[str],
    typer.Argument(
        help="ROLE@SCOPE: viewer, publisher, consumer, responder, registrar, operator or admin; server, namespace:NAME,"
        " topic:PATTERN or subject:PATTERN. A role alone holds everywhere.",
        metavar="ROLE@SCOPE...",
    ),
]


@app.command()
@opt.bundled
def grant(
    broker: opt.BrokerOptions,
    principal: Principal,
    binding: Bindings,
    data: DataDirectory = None,
    json: opt.Json = False,
) -> None:
    """Grant a role to a principal. It holds when the command returns.

    Examples:

    `penstock access grant key:shop publisher@topic:/shop/orders.#`

    `penstock access grant jwt:alice@example.org viewer consumer@namespace:shop`
    """
    _change(broker, data, "system.access.grant", principal, binding, json=json)


@app.command()
@opt.bundled
def revoke(
    broker: opt.BrokerOptions,
    principal: Principal,
    binding: Bindings,
    data: DataDirectory = None,
    json: opt.Json = False,
) -> None:
    """Revoke a role of a principal. Consumption that is no longer allowed ends at once.

    Example: `penstock access revoke key:shop publisher@topic:/shop/orders.#`
    """
    _change(broker, data, "system.access.revoke", principal, binding, json=json)


def _change(
    broker: opt.BrokerOptions, data: Any, topic: str, principal: str, binding: list[str], *, json: bool
) -> None:
    answer = ask_access(broker, data, topic, {"principal": principal, "binding": binding})
    if json:
        print_json(answer)
    else:
        typer.echo(f"{answer['principal']} has {', '.join(answer['bindings']) or 'no roles'}")


@app.command()
@opt.bundled
def show(
    broker: opt.BrokerOptions,
    principal: Annotated[str | None, typer.Argument(help="Of one. Default: of all.")] = None,
    data: DataDirectory = None,
    json: opt.Json = False,
) -> None:
    """Show the roles of principals, and their scopes.

    Examples:

    `penstock access show`

    `penstock access show key:shop --json`
    """
    answer = ask_access(broker, data, "system.access.show", {} if principal is None else {"principal": principal})
    bindings = answer["bindings"]
    if json:
        for facts in bindings:
            print_json(facts)
    elif not bindings:
        typer.echo("nobody has a role yet: penstock access grant PRINCIPAL ROLE@SCOPE")
    else:
        rows = [
            [binding["principal"], binding["role"], binding["scope"], time_text(binding["created_ms"])]
            for binding in bindings
        ]
        table("roles", ("principal", "role", "scope", "since"), rows)
    if answer.get("truncated"):
        sys.stderr.write(f"penstock: {len(bindings)} of {answer['total']:,} are shown: name a principal\n")
