"""Handlers of compatibility levels, modes and compatibility checks, in the registry's dialect."""

from __future__ import annotations

import asyncio

from msgspec import UNSET

from penstock.core.schemas import Compatibility
from penstock.schema.errors import InvalidCompatibility
from penstock.schema.problems import Problem
from penstock.schema.registry.models import CompatibilityConfig
from penstock.schema.steps import Procedure
from penstock.server.api.broker_calls import disconnected
from penstock.server.api.request import ApiRequest
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

# compatibility checks


async def check(request: ApiRequest) -> object:
    return _checked(request, await _checked_problems(request, None))


async def check_version(request: ApiRequest) -> object:
    return _checked(request, await _checked_problems(request, request.path_params["version"]))


async def _checked_problems(request: ApiRequest, version: int | str | None) -> list[Problem]:
    """Return the problems of the schema in the body, compared with the given version, or with the versions that the
    subject's compatibility level names. If the client disconnects before the check has begun, the check is dropped."""
    leaving = asyncio.ensure_future(disconnected(request.receive))
    REQUESTER.set(REQUESTER.get()._replace(is_waiting=lambda: not leaving.done()))
    try:
        return await request.run(_problems(request, version))
    finally:
        leaving.cancel()


def _problems(request: ApiRequest, version: int | str | None) -> Procedure[list[Problem]]:
    return request.registry.check(request.path_params["subject"], sent_schema(request), version)


def _checked(request: ApiRequest, problems: list[Problem]) -> CheckAnswer:
    if not request.query["verbose"]:
        return CheckAnswer(is_compatible=not problems)
    return CheckAnswer(
        is_compatible=not problems,
        messages=[f"{problem.kind}: {problem.sentence()}" for problem in problems],
        problems=[problem.as_dict() for problem in problems] if request.accepts_extensions else None,
    )


# settings, of one subject or global


async def get_config(request: ApiRequest) -> object:
    registry = request.registry
    return _config(request, registry.compatibility(_scope(request), default_to_global=request.query["defaultToGlobal"]))


async def put_config(request: ApiRequest) -> object:
    body: CompatibilityBody = request.body
    body.check()
    if body.compatibility is UNSET and body.lenient is UNSET and body.normalize is None:
        raise InvalidCompatibility(f"Invalid compatibility level. Valid values are {', '.join(Compatibility)}")
    level = None if body.compatibility is UNSET else body.compatibility
    lenient = None if body.lenient is UNSET else body.lenient
    rules = await request.run(request.registry.set_compatibility(_scope(request), level, lenient=lenient))
    lenient_shown = (request.accepts_extensions and rules.lenient) or None
    return ConfigSetAnswer(compatibility=rules.compatibility, lenient=lenient_shown, normalize=body.normalize)


async def delete_config(request: ApiRequest) -> object:
    return _config(request, await request.run(request.registry.clear_compatibility(_scope(request))))


def _config(request: ApiRequest, rules: CompatibilityConfig) -> ConfigAnswer:
    return ConfigAnswer(
        compatibility_level=rules.compatibility,
        lenient=(request.accepts_extensions and rules.lenient) or None,
        normalize=request.accepts_extensions or None,
    )


async def get_mode(request: ApiRequest) -> object:
    return ModeAnswer(request.registry.mode(_scope(request), default_to_global=request.query["defaultToGlobal"]))


async def put_mode(request: ApiRequest) -> object:
    body: ModeBody = request.body
    return ModeAnswer(
        await request.run(request.registry.set_mode(_scope(request), body.mode, force=request.query["force"]))
    )


async def delete_mode(request: ApiRequest) -> object:
    return ModeAnswer(await request.run(request.registry.clear_mode(_scope(request))))


def _scope(request: ApiRequest) -> str | None:
    subject: str | None = request.path_params.get("subject")
    return subject
