"""What operators and their programs ask: is it alive, is it ready, how is it doing."""

from __future__ import annotations

from typing import Final

from penstock.broker.access.policy import Operation
from penstock.server.api.request import Call, Encoded
from penstock.server.api.routing import PUBLIC, Method, Need, Parameter, Row
from penstock.server.operations.health import Health
from penstock.server.operations.metrics import MEDIA
from penstock.server.operations.state import OperationsState

VARIABLES: Final[dict[str, Parameter]] = {}


async def livez(call: Call) -> object:
    return call.part(OperationsState).alive().check()


async def readyz(call: Call) -> object:
    return (await call.part(OperationsState).ready()).check()


async def metrics(call: Call) -> object:
    return Encoded(await call.part(OperationsState).metrics(), MEDIA)


ROWS: Final = (
    Row(
        method=Method.GET,
        path="/livez",
        handler=livez,
        about="whether the broker is alive; if it is not, restart it",
        needs=PUBLIC,
        answer=Health,
        errors=(503,),
    ),
    Row(
        method=Method.GET,
        path="/readyz",
        handler=readyz,
        about="whether the broker takes messages, each condition by its name, and why one is not met",
        needs=PUBLIC,
        answer=Health,
        errors=(503,),
    ),
    Row(
        method=Method.GET,
        path="/metrics",
        handler=metrics,
        about="measurements in Prometheus' text format",
        needs=Need(Operation.SERVER_VIEW),
        media=MEDIA,
    ),
)
