"""Answers about dead letters. What takes long ends if the client hangs up; what is done by then stays done."""

from __future__ import annotations

from typing import Any, Final

from penstock.server.api.broker_calls import asked, asked_patiently, given, page
from penstock.server.api.request import Call

_RENAMED: Final = {"previewBytes": "preview_bytes", "redrivesMax": "redrives_max"}


async def list_all(call: Call) -> object:
    return page(await asked(call, "system.deadletter.list", given(call.query)), "dead_letters", "topic")


async def browse(call: Call) -> object:
    fields = {_RENAMED.get(name, name): value for name, value in given(call.query).items()}
    return await asked_patiently(call, "system.deadletter.browse", _topic(call) | fields)


async def redrive(call: Call) -> object:
    return await asked_patiently(call, "system.deadletter.redrive", _topic(call) | given(call.body))


async def drop(call: Call) -> object:
    return await asked_patiently(call, "system.deadletter.drop", _topic(call) | given(call.body))


def _topic(call: Call) -> dict[str, Any]:
    return {"topic": call.named["topic"]}
