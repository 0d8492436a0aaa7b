"""The routes of the front page and of the API's description."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.server.api import openapi
from penstock.server.api.bodies import best_of
from penstock.server.api.errors import FLAT, JSON
from penstock.server.api.request import ApiRequest, EncodedAnswer
from penstock.server.api.routing import PUBLIC, Method, Parameter, Route, RouteTable
from penstock.server.front import pages
from penstock.server.http_scope import header

PATH_PARAMETERS: Final[dict[str, Parameter]] = {}

LINKS: Final = (
    ("/docs", "what can be asked, for people"),
    ("/openapi.json", "the same, for programs"),
    ("/livez", "whether the broker is alive"),
    ("/readyz", "whether it takes messages"),
    ("/metrics", "measurements, as Prometheus reads them"),
)


class Welcome(msgspec.Struct, frozen=True):
    """The server's name, version and links."""

    name: str
    version: str
    links: dict[str, str]


_WELCOME: Final = Welcome("penstock", __version__, {path.strip("/").partition(".")[0]: path for path, _ in LINKS})
_PAGE: Final = {"content-security-policy": pages.POLICY, "vary": "accept"}


async def get_root(request: ApiRequest) -> object:
    """Return the front page to browsers, and the same facts as JSON to all others. Clients of schema registries get
    that JSON under the registry's media type."""
    accept = (header(request.scope, b"accept") or "*/*").lower()
    if "text/html" in accept:
        return EncodedAnswer(pages.welcome(LINKS), pages.HTML, _PAGE)
    media, _ = best_of(accept, FLAT) if "schemaregistry" in accept else (JSON, 1.0)
    return EncodedAnswer(msgspec.json.encode(_WELCOME), media, {"vary": "accept"})


async def get_operations(request: ApiRequest) -> object:
    return EncodedAnswer(pages.operations(request.service(RouteTable)), pages.HTML, _PAGE)


async def get_description(request: ApiRequest) -> object:
    return EncodedAnswer(openapi.encoded(request.service(RouteTable)), JSON)


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/",
        handler=get_root,
        about="what this is, and where to go on; a page for who takes one",
        permission=PUBLIC,
        answer=Welcome,
        media_too=("text/html",),
    ),
    Route(
        method=Method.GET,
        path="/docs",
        handler=get_operations,
        about="what can be asked over HTTP, as a page",
        permission=PUBLIC,
        media="text/html",
    ),
    Route(
        method=Method.GET,
        path="/openapi.json",
        handler=get_description,
        about="the same, as OpenAPI",
        permission=PUBLIC,
        answer=dict[str, Any],
    ),
)
