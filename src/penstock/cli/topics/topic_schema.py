"""`penstock topic schema`: the policy for which schemas a topic's messages may name, and for messages that do not
conform."""

from __future__ import annotations

import sys
from json import loads as load_json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.output import on_one_line, print_facts, print_json
from penstock.cli.schema_source import NONE, none_or_all, parse_version
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import LATEST, SchemaKind, default_subject

if TYPE_CHECKING:
    from penstock.client.sync import Client

app = typer.Typer(help="What a topic wants of its messages' schemas: show, set.", no_args_is_help=True)

_SUBJECT_NOT_FOUND: Final = 40401
_VERSION_NOT_FOUND: Final = 40402
_NO_VERSION: Final = "no version yet"
_DEFAULTS: Final = {None: "none: a message says itself what it is", LATEST: "the latest version of the first subject"}
_DEMANDING: Final = (
    *("required", "minProperties", "maxProperties", "propertyNames", "patternProperties", "dependencies"),
    *("dependentRequired", "dependentSchemas", "$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const"),
)
"""JSON Schema keywords by which a schema may restrict an object, besides keywords about its properties."""
_MEANINGS: Final = {
    "none": "none: schemas are not looked at",
    "warn": "warn: what is wrong is stored, marked x-schema-warning",
    "enforce": "enforce: what is wrong is refused, SCHEMA_REJECTED",
}


@app.command()
@opt.bundled
def show(broker: opt.BrokerOptions, topic: opt.Topic, json: opt.Json = False) -> None:
    """Show the schema policy of a topic.

    Example: `penstock topic schema show orders.created`
    """
    with broker.connect() as client:
        facts = client.ask("system.topic.describe", {"topic": topic})
        _print(client, facts, json=json)


@app.command("set")
@opt.bundled
def set_(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    policy: Annotated[str | None, typer.Option(help="none, warn or enforce.", metavar="WHAT")] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Whose versions messages may name; may be repeated. none: TOPIC-value, the default."),
    ] = None,
    payloads: Annotated[
        bool | None,
        typer.Option(
            "--payloads/--no-payloads",
            help="Whether payloads are held against their schema; they are, under enforce, unless you say no.",
        ),
    ] = None,
    default: Annotated[
        str | None,
        typer.Option(help="The version meant where a message names none: a number, latest or none.", metavar="N"),
    ] = None,
    deprecated: Annotated[
        bool | None, typer.Option("--deprecated/--no-deprecated", help="Whether deprecated versions may be named.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Change the schema policy of a topic: only what is given changes.

    Examples:

    `penstock topic schema set orders.created --policy enforce --default latest`

    `penstock topic schema set orders.created --policy enforce --no-payloads`

    `penstock topic schema set orders.created --subject order-created --subject order-cancelled`

    `penstock topic schema set orders.created --policy none`
    """
    named = {"policy": policy, "payloads": payloads, "deprecated": deprecated}
    changes: dict[str, Any] = {f"schema_{name}": value for name, value in named.items() if value is not None}
    if default is not None:
        changes["schema_default"] = None if default == NONE else parse_version("--default", default)
    if subject:
        changes["schema_subjects"] = none_or_all("--subject", subject)
    if not changes:
        raise InvalidRequest("nothing to change: give at least one option, such as --policy enforce")
    with broker.connect() as client:
        facts = client.ask("system.topic.alter", {"topic": topic} | changes)
        _print(client, facts, json=json)


def schema_settings(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema settings of a topic. Those that are not set have their defaults."""
    settings = facts["settings"]
    return {
        "topic": facts["topic"],
        "policy": settings.get("schema_policy", NONE),
        "subjects": settings.get("schema_subjects") or [default_subject(TopicName.parse(facts["topic"]))],
        "payloads": settings.get("schema_payloads", False),
        "default": settings.get("schema_default"),
        "deprecated": settings.get("schema_deprecated", True),
    }


def _print(client: Client, facts: dict[str, Any], *, json: bool) -> None:
    policy = schema_settings(facts)
    if json:
        print_json(policy)
        return
    subjects = [(name, _latest(client, name)) for name in policy["subjects"]]
    print_facts(
        [
            ("topic", policy["topic"]),
            ("policy", _MEANINGS[policy["policy"]]),
            *(("" if index else "subjects", f"{name} ({state})") for index, (name, state) in enumerate(subjects)),
            ("payloads", payloads_text(policy["policy"], checked=policy["payloads"])),
            ("default", _DEFAULTS.get(policy["default"]) or f"version {policy['default']}"),
            ("deprecated versions", "may be named" if policy["deprecated"] else "may not be named"),
        ]
    )
    _hint(client, policy, all(state == _NO_VERSION for _, state in subjects))


def payloads_text(policy: str, *, checked: bool) -> str:
    """Describe whether the topic validates payloads, or only the schema ids that messages name."""
    if policy == NONE:
        return "not looked at"
    return "checked against the version they name" if checked else "not looked at: ids only (--payloads checks them)"


def _hint(client: Client, policy: dict[str, Any], empty: bool) -> None:
    """Print a hint if the topic refuses every message, if its default version does not exist, or if its schema accepts
    any object."""
    first = on_one_line(policy["subjects"][0])
    if policy["policy"] == "enforce" and empty:
        sys.stderr.write(f"every message is refused until there is a version: penstock schema register {first} FILE\n")
    elif policy["default"] is not None and not _is_living(client, policy["subjects"][0], policy["default"]):
        missing = "no version" if policy["default"] == LATEST else f"no version {policy['default']}"
        sys.stderr.write(f"{first} has {missing}: messages that name no schema get none until there is one\n")
    elif policy["payloads"] and policy["policy"] != NONE and _takes_any_object(client, policy["subjects"][0]):
        sys.stderr.write(
            f"{first} takes any object: it requires no property and allows others than it names. To change that, give"
            ' its next version "required" properties, or "additionalProperties": false\n'
        )


def _takes_any_object(client: Client, subject: str) -> bool:
    """Return True if the latest version of the subject is a JSON Schema that accepts nearly every object."""
    try:
        schema = client.ask("system.schema.get", {"subject": subject, "version": LATEST})
    except InvalidRequest as error:
        if error.details.get("registry_code") not in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
            raise
        return False
    return schema["type"] == SchemaKind.JSON and has_open_content(schema["schema"])


def has_open_content(text: str) -> bool:
    """Return True if a JSON Schema requires nothing and allows any property. Only its outermost keywords are looked
    at."""
    schema = load_json(text)
    if not isinstance(schema, dict):
        return schema is True
    return (
        schema.get("type", "object") == "object"
        and not any(schema.get(word) for word in _DEMANDING)
        and all(
            schema.get(word, True) is True or schema[word] == {}
            for word in ("additionalProperties", "unevaluatedProperties")
        )
    )


def _is_living(client: Client, subject: str, version: int | str) -> bool:
    """Return True if this version of the subject exists and is not deleted."""
    try:
        return not client.ask("system.schema.get", {"subject": subject, "version": version})["deleted"]
    except InvalidRequest as error:
        if error.details.get("registry_code") not in (_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND):
            raise
        return False


def _latest(client: Client, subject: str) -> str:
    """Describe the latest version of a subject in words."""
    try:
        latest = client.ask("system.schema.versions", {"subject": subject})["versions"][-1]
    except InvalidRequest as error:
        if error.details.get("registry_code") != _SUBJECT_NOT_FOUND:
            raise
        return _NO_VERSION
    return f"latest version {latest['version']}, id {latest['id']}, {latest['type']}"
