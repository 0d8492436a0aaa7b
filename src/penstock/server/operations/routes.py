"""The routes of operations: liveness, readiness, metrics."""

from __future__ import annotations

from typing import Final

from penstock.broker.access.policy import Operation
from penstock.server.api.request import ApiRequest, EncodedAnswer
from penstock.server.api.routing import PUBLIC, Method, Parameter, Permission, Route
from penstock.server.operations.health import Health
from penstock.server.operations.metrics import MEDIA
from penstock.server.operations.state import OperationsState

PATH_PARAMETERS: Final[dict[str, Parameter]] = {}


async def livez(request: ApiRequest) -> object:
    return request.service(OperationsState).alive().check()


async def readyz(request: ApiRequest) -> object:
    return (await request.service(OperationsState).ready()).check()


async def metrics(request: ApiRequest) -> object:
    return EncodedAnswer(await request.service(OperationsState).metrics(), MEDIA)


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/livez",
        handler=livez,
        about="whether the broker is alive; if it is not, restart it",
        permission=PUBLIC,
        answer=Health,
        errors=(503,),
    ),
    Route(
        method=Method.GET,
        path="/readyz",
        handler=readyz,
        about="whether the broker takes messages, each condition by its name, and why one is not met",
        permission=PUBLIC,
        answer=Health,
        errors=(503,),
    ),
    Route(
        method=Method.GET,
        path="/metrics",
        handler=metrics,
        about="measurements in Prometheus' text format",
        permission=Permission(Operation.SERVER_VIEW),
        media=MEDIA,
    ),
)
