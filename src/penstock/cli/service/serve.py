"""`penstock serve`: run a broker."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK
from penstock.cli.imports import importing
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from penstock.server.main import Ready
    from penstock.server.settings import Settings


def serve(
    config: opt.Config = None,
    data: opt.ServerData = None,
    host: opt.Host = None,
    tcp_port: opt.Port = None,
    ws_port: opt.Port = None,
    http_port: opt.Port = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="Clients need a certificate signed by this (PEM).")] = None,
    ws_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a web page that may connect, such as https://app.example."),
    ] = None,
    allow_plaintext: Annotated[
        bool | None, typer.Option("--allow-plaintext", help="Listen beyond this machine without TLS.")
    ] = None,
    allow_anonymous: Annotated[
        bool | None, typer.Option("--allow-anonymous", help="Listen beyond this machine without client certificates.")
    ] = None,
    auth: Annotated[
        str | None, typer.Option(help="on: everybody says who they are, and may only what they were granted.")
    ] = None,
    jwt_issuer: Annotated[str | None, typer.Option(help="Whose tokens are taken (iss).")] = None,
    jwt_audience: Annotated[str | None, typer.Option(help="For whom tokens must be (aud).")] = None,
    jwt_jwks_file: Annotated[
        Path | None, typer.Option(help="Public keys that sign tokens (JWKS; RS256, ES256).")
    ] = None,
    jwt_secret_file: Annotated[Path | None, typer.Option(help="The secret that signs tokens (HS256).")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warn or error. Default: info.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json. Default: text.")] = None,
    auto_create: Annotated[
        str | None, typer.Option(help="Topics that nobody created: reliable, live or off. Default: reliable.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written once connections are accepted: pid, data directory, ports, as JSON.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print pid, data directory and ports as JSON.")] = False,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    Settings come from the file, then PENSTOCK_... variables, then these options. Limits are set in the file
    (`[limits]`) or as PENSTOCK_LIMITS_... variables. SIGHUP reads the certificates again.

    Examples:

    `penstock serve`

    `penstock serve --data /var/lib/penstock --tcp-port 0 --ws-port off --ready-file ready.json`

    `penstock serve --tcp-port 7550 --ws-port 7551 --http-port 7552`

    `penstock serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --tls-ca clients.pem`

    `penstock serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --auth on`
    """
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)  # left by a broker that was killed: deleted first, since others wait for it
    if sys.stderr.isatty():
        sys.stderr.write("penstock: starting ...\n")
    with importing():
        from penstock.server import logs, settings
        from penstock.server.main import serve as run

    options = {
        "data": data,
        "host": host,
        "tcp_port": tcp_port,
        "ws_port": ws_port,
        "http_port": http_port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_ca": tls_ca,
        "ws_origins": ws_origin or None,
        "allow_plaintext": allow_plaintext or None,
        "allow_anonymous": allow_anonymous or None,
        "auth": auth,
        "jwt_issuer": jwt_issuer,
        "jwt_audience": jwt_audience,
        "jwt_jwks_file": jwt_jwks_file,
        "jwt_secret_file": jwt_secret_file,
        "log_level": log_level,
        "log_format": log_format,
        "auto_create": auto_create,
    }
    chosen = settings.load(config, os.environ, options)
    logs.configure(chosen.log_level, chosen.log_format)

    def ready(listeners: Ready) -> None:
        if ready_file is not None:
            listeners.write(ready_file)
        _announce(listeners, chosen, json=json)

    try:
        caught = run(chosen, ready=ready)
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    raise typer.Exit(EXIT_INTERRUPTED if caught == signal.SIGINT else EXIT_OK)


def _announce(listeners: Ready, chosen: Settings, *, json: bool) -> None:
    if json:
        print_json({name: getattr(listeners, name) for name in listeners.__slots__})
    else:
        host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
        schemes = ("tcp", "ws", "http") if chosen.tls is None else ("tls", "wss", "https")
        listening = (listeners.tcp_port, listeners.ws_port, listeners.http_port)
        ports = zip(("TCP", "WebSocket", "HTTP"), schemes, listening, strict=True)
        shown = [f"{name} {scheme}://{host}:{port}" for name, scheme, port in ports if port is not None]
        typer.echo(f"penstock is ready: {', '.join(shown)}, data in {listeners.data}")
    sys.stdout.flush()
