"""HTML pages: a welcome, and the documentation of the API, generated from the routes. No scripts, and no external
resources."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from typing import Final

from penstock import __version__
from penstock.server.api.openapi import operation_id, parameter_names
from penstock.server.api.routing import Parameter, Route, RouteTable

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
"""The content security policy of the pages: only their own style is allowed, and nothing is loaded."""


def welcome(links: Iterable[tuple[str, str]]) -> bytes:
    """Return the front page as HTML. `links` are pairs of a path and what is found there."""
    listed = "".join(f'<li><a href="{escape(path)}">{escape(path)}</a>: {escape(about)}</li>' for path, about in links)
    about = "A message broker whose log is the data pipeline's table."
    return _page("Penstock", f"<p>{about} Version {escape(__version__)}.</p><ul>{listed}</ul>")


@lru_cache(maxsize=8)
def operations(table: RouteTable) -> bytes:
    """Return the documentation of all operations as HTML, by group."""
    groups = dict.fromkeys(route.tag for route in table.routes)
    listed = "".join(f'<li><a href="#{_anchor(group)}">{escape(group)}</a></li>' for group in groups)
    intro = '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>'
    parts = "".join(_group(group, [route for route in table.routes if route.tag == group], table) for group in groups)
    return _page("What can be asked of Penstock over HTTP", f"{intro}<ul>{listed}</ul>{parts}")


def _page(title: str, body: str) -> bytes:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>'.encode()
    )


def _group(name: str, routes: Iterable[Route], table: RouteTable) -> str:
    return f'<h2 id="{_anchor(name)}">{escape(name)}</h2>' + "".join(_section(route, table) for route in routes)


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))


def _section(route: Route, table: RouteTable) -> str:
    asked = f"<h3><code>{route.method.value} {escape(route.path)}</code></h3>"
    known = "".join(_parameters(route, table))
    listed = f"<dl>{known}</dl>" if known else ""
    return f'<section id="{operation_id(route)}">{asked}<p>{escape(route.about)}</p>{listed}</section>'


def _parameters(route: Route, table: RouteTable) -> Iterator[str]:
    where: tuple[tuple[str, Iterable[Parameter]], ...] = (
        ("in the path", (table.path_parameters[name] for name in parameter_names(route))),
        ("behind the question mark", route.query),
        ("in a header", route.headers),
    )
    for where_label, parameters in where:
        for parameter in parameters:
            yield f"<dt><code>{escape(parameter.name)}</code> {where_label}</dt><dd>{escape(parameter.about)}</dd>"
