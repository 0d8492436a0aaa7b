"""Answers in the dialect about what new versions are held to, and whether a schema would do."""

from __future__ import annotations

import asyncio

from msgspec import UNSET

from penstock.core.schemas import Compatibility
from penstock.schema.errors import InvalidCompatibility
from penstock.schema.problems import Problem
from penstock.schema.registry.models import CompatibilityConfig
from penstock.schema.steps import Procedure
from penstock.server.api.broker_calls import gone
from penstock.server.api.request import Call
from penstock.server.registry.handlers import sent_schema
from penstock.server.registry.models import (
    CheckAnswer,
    CompatibilityBody,
    ConfigAnswer,
    ConfigSetAnswer,
    ModeAnswer,
    ModeBody,
)
from penstock.server.resources.fair_queue import REQUESTER

# compatibility


async def check(call: Call) -> object:
    return _checked(call, await _asked(call, None))


async def check_version(call: Call) -> object:
    return _checked(call, await _asked(call, call.named["version"]))


async def _asked(call: Call, version: int | str | None) -> list[Problem]:
    """What has not begun when the client hangs up is not begun."""
    leaving = asyncio.ensure_future(gone(call.receive))
    REQUESTER.set(REQUESTER.get()._replace(is_waiting=lambda: not leaving.done()))
    try:
        return await call.desk.run(_problems(call, version))
    finally:
        leaving.cancel()


def _problems(call: Call, version: int | str | None) -> Procedure[list[Problem]]:
    return call.desk.registry.check(call.named["subject"], sent_schema(call), version)


def _checked(call: Call, problems: list[Problem]) -> CheckAnswer:
    if not call.query["verbose"]:
        return CheckAnswer(is_compatible=not problems)
    return CheckAnswer(
        is_compatible=not problems,
        messages=[f"{problem.kind}: {problem.sentence()}" for problem in problems],
        problems=[problem.as_dict() for problem in problems] if call.more else None,
    )


# settings, of a subject or of all


async def get_config(call: Call) -> object:
    registry = call.desk.registry
    return _config(call, registry.compatibility(_scope(call), default_to_global=call.query["defaultToGlobal"]))


async def put_config(call: Call) -> object:
    body: CompatibilityBody = call.body
    body.check()
    if body.compatibility is UNSET and body.lenient is UNSET and body.normalize is None:
        raise InvalidCompatibility(f"Invalid compatibility level. Valid values are {', '.join(Compatibility)}")
    level = None if body.compatibility is UNSET else body.compatibility
    lenient = None if body.lenient is UNSET else body.lenient
    rules = await call.desk.run(call.desk.registry.set_compatibility(_scope(call), level, lenient=lenient))
    lenient_told = (call.more and rules.lenient) or None
    return ConfigSetAnswer(compatibility=rules.compatibility, lenient=lenient_told, normalize=body.normalize)


async def delete_config(call: Call) -> object:
    return _config(call, await call.desk.run(call.desk.registry.clear_compatibility(_scope(call))))


def _config(call: Call, rules: CompatibilityConfig) -> ConfigAnswer:
    return ConfigAnswer(
        compatibility_level=rules.compatibility,
        lenient=(call.more and rules.lenient) or None,
        normalize=call.more or None,
    )


async def get_mode(call: Call) -> object:
    return ModeAnswer(call.desk.registry.mode(_scope(call), default_to_global=call.query["defaultToGlobal"]))


async def put_mode(call: Call) -> object:
    body: ModeBody = call.body
    return ModeAnswer(
        await call.desk.run(call.desk.registry.set_mode(_scope(call), body.mode, force=call.query["force"]))
    )


async def delete_mode(call: Call) -> object:
    return ModeAnswer(await call.desk.run(call.desk.registry.clear_mode(_scope(call))))


def _scope(call: Call) -> str | None:
    subject: str | None = call.named.get("subject")
    return subject
