"""Pages for people: what this is, and what can be asked of it. Made of the very rows that answer; no scripts, and
nothing from anywhere else."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from typing import Final

from penstock import __version__
from penstock.server.api.openapi import operation_id, variables_of
from penstock.server.api.routing import Parameter, Row, Table

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{font-family:ui-monospace,monospace}"
    "section{border-top:1px solid #ccc;padding:.5rem 0}"
    "h3{margin:.5rem 0}dt{float:left;clear:left;width:14rem}dd{margin-left:15rem}"
)
_DIGEST: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A page may have the one style that it was made with, and nothing else."""


def welcome(links: Iterable[tuple[str, str]]) -> bytes:
    """What this is, and where to go on."""
    listed = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a>: {escape(about)}</li>' for path, about in links)
    about = "A message broker whose log is the data pipeline's table."
    return _page("Penstock", f"<p>{about} Version {escape(__version__)}.</p><ul>{listed}</ul>")


@lru_cache(maxsize=8)
def operations(table: Table) -> bytes:
    """Everything that can be asked, room by room."""
    rooms = dict.fromkeys(row.tag for row in table.rows)
    listed = "".join(f'<li><a href="#{_anchor(room)}">{escape(room)}</a></li>' for room in rooms)
    intro = '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>'
    parts = "".join(_room(room, [row for row in table.rows if row.tag == room], table) for room in rooms)
    return _page("What can be asked of Penstock over HTTP", f"{intro}<ul>{listed}</ul>{parts}")


def _page(title: str, body: str) -> bytes:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>'.encode()
    )


def _room(name: str, rows: Iterable[Row], table: Table) -> str:
    return f'<h2 id="{_anchor(name)}">{escape(name)}</h2>' + "".join(_section(row, table) for row in rows)


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))


def _section(row: Row, table: Table) -> str:
    asked = f"<h3><code>{row.method.value} {escape(row.path)}</code></h3>"
    known = "".join(_parameters(row, table))
    listed = f"<dl>{known}</dl>" if known else ""
    return f'<section id="{operation_id(row)}">{asked}<p>{escape(row.about)}</p>{listed}</section>'


def _parameters(row: Row, table: Table) -> Iterator[str]:
    where: tuple[tuple[str, Iterable[Parameter]], ...] = (
        ("in the path", (table.variables[name] for name in variables_of(row))),
        ("behind the question mark", row.query),
        ("in a header", row.headers),
    )
    for place, parameters in where:
        for each in parameters:
            yield f"<dt><code>{escape(each.name)}</code> {place}</dt><dd>{escape(each.about)}</dd>"
