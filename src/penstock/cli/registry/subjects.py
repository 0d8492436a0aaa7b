"""`penstock schema config | describe | deprecate | delete | undelete`: change the settings of subjects, and
versions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.output import confirm, on_one_line, print_facts, print_json
from penstock.cli.registry.registry_calls import (
    SUBJECT_NOT_FOUND,
    AskRegistry,
    Subject,
    has_versions,
    hint_at_similar,
    registry_client,
)
from penstock.cli.schema_source import NONE, none_or_all, parse_version
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Compatibility, SubjectMode

_NOTHING_SET: Final = SUBJECT_NOT_FOUND
"""The error code for clearing the settings of a subject that has none."""

_NAMED_MAX: Final = 10
"""The most versions named in a sentence."""

OneVersion = Annotated[int | None, typer.Option(min=1, help="One version. Default: all of them.", metavar="N")]


@opt.bundled
def config(
    broker: opt.BrokerOptions,
    subject: Annotated[str | None, typer.Argument(help="One subject. Default: what holds for all others.")] = None,
    compatibility: Annotated[
        str | None,
        typer.Option(help="NONE, BACKWARD, FORWARD or FULL, the last three also _TRANSITIVE.", metavar="WHAT"),
    ] = None,
    lenient: Annotated[
        bool | None, typer.Option("--lenient/--strict", help="Whether optional additions to open content pass.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="READWRITE, READONLY, READONLY_OVERRIDE or IMPORT.", metavar="MODE")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Nothing of its own any more.")] = False,
    json: opt.Json = False,
) -> None:
    """Show what new versions are held to, of one subject or of all; with options, change it first.

    Examples:

    `penstock schema config`

    `penstock schema config orders-value --compatibility FULL_TRANSITIVE`

    `penstock schema config orders-value --mode READONLY`

    `penstock schema config orders-value --clear`
    """
    named = {
        "compatibility": _parse_word("--compatibility", compatibility, Compatibility),
        "lenient": lenient,
        "mode": _parse_word("--mode", mode, SubjectMode),
    }
    changes = {name: value for name, value in named.items() if value is not None}
    if clear and changes:
        raise InvalidRequest("--clear takes back all that was set: give it alone")
    scope = {} if subject is None else {"subject": subject}
    with registry_client(broker) as ask:
        if clear:
            _clear(ask, scope)
        settings = ask("config", **scope, **changes)
        if json:
            print_json(scope | settings)
        else:
            _print_config(subject, settings)
            if subject is not None and not has_versions(ask, subject):
                hint_at_similar(ask, subject)


def _clear(ask: AskRegistry, scope: dict[str, str]) -> None:
    """Clear the settings of a subject, the mode first: while the mode is read-only, no other setting can be changed."""
    for name in ("mode", "compatibility"):
        try:
            ask("config", **scope, **{name: None})
        except InvalidRequest as error:
            if error.details.get("registry_code") != _NOTHING_SET:
                raise


def _parse_word(option: str, text: str | None, kind: type[StrEnum]) -> str | None:
    if text is None:
        return None
    word = text.upper().replace("-", "_")
    if word not in tuple(kind):
        raise InvalidRequest(f"{option} {text!r}: choose from {', '.join(kind)}", given=text)
    return word


def _print_config(subject: str | None, settings: dict[str, Any]) -> None:
    inherited = subject is not None and settings["inherited"]
    print_facts(
        [
            ("subject", "all that have nothing of their own" if subject is None else subject),
            ("compatibility", settings["compatibility"] + (" (as for all)" if inherited else "")),
            ("optional additions", "pass (lenient)" if settings["lenient"] else "are judged (strict)"),
            ("mode", settings["mode"]),
        ]
    )


# descriptions


@opt.bundled
def describe(
    broker: opt.BrokerOptions,
    subject: Subject,
    version: Annotated[str, typer.Argument(help="A version, or latest.")],
    description: Annotated[str | None, typer.Option(help="What it is, in a sentence; '': none.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A word to find it by, may be repeated; all others go. none: none.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Say something else about a version: its description, its tags. Only what is given changes.

    Examples:

    `penstock schema describe orders-value 1 --description 'without a currency'`

    `penstock schema describe orders-value latest --tag team=shop --tag public`
    """
    words: dict[str, Any] = {} if description is None else {"description": description}
    if tag:
        words["tags"] = none_or_all("--tag", tag) or []
    if not words:
        raise InvalidRequest("nothing to change: give --description or --tag")
    with registry_client(broker) as ask:
        answer = ask("describe", subject=subject, version=parse_version("VERSION", version), **words)
    if json:
        print_json(answer)
        return
    shown = {"description": answer.get("description"), "tags": ", ".join(answer.get("tags", ()))}
    print_facts(
        [
            ("subject", subject),
            ("version", answer["version"]),
            *((name, value or NONE) for name, value in shown.items()),
        ]
    )


@opt.bundled
def deprecate(
    broker: opt.BrokerOptions,
    subject: Subject,
    version: Annotated[int, typer.Argument(min=1, help="The version that nobody should use any more.")],
    message: Annotated[str | None, typer.Argument(help="Why, and what instead.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    json: opt.Json = False,
) -> None:
    """Say that a version should not be used any more, and why; topics may refuse it then.

    Examples:

    `penstock schema deprecate orders-value 1 'has no currency: use version 2'`

    `penstock schema deprecate orders-value 1 --undo`
    """
    if undo is (message is not None):
        raise InvalidRequest("say why, such as 'use version 2'; or --undo, which takes it back")
    with registry_client(broker) as ask:
        ask("deprecate", subject=subject, version=version, message=message)
    if json:
        print_json({"subject": subject, "version": version, "deprecated": message})
    else:
        typer.echo(f"{on_one_line(subject)}: version {version} is {'no longer deprecated' if undo else 'deprecated'}")


# deleting


@opt.bundled
def delete(
    broker: opt.BrokerOptions,
    subject: Subject,
    version: OneVersion = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good, what was deleted before. It does not come back.")
    ] = False,
    archived: Annotated[
        bool, typer.Option("--archived", help="With --permanent: also where an archive has messages of it.")
    ] = False,
    yes: opt.Yes = False,
    json: opt.Json = False,
) -> None:
    """Delete a version, or a subject with all of them; says what goes, and asks.

    What is deleted can be brought back with `undelete`, until it is deleted once more with --permanent. That is refused
    while a topic, or an archive that reports to the broker, has messages of it. Of an archive that is no more nobody
    tells the broker: that is what --archived is for.

    Examples:

    `penstock schema delete orders-value --version 1`

    `penstock schema delete orders-value --version 1 --permanent --yes`
    """
    if archived and not permanent:
        raise InvalidRequest("--archived is about what is deleted for good: it goes with --permanent")
    grade = {"permanent": permanent} | ({"archived": True} if archived else {})
    with registry_client(broker) as ask:
        versions = _versions_to_delete(ask, subject, version, permanent=permanent)
        confirm(_question(subject, versions, permanent=permanent), yes=yes)
        done = ask("delete", subject=subject, **grade, **_version_field(version))["versions"]
    _print_done(subject, done, "deleted for good" if permanent else "deleted", json=json)


def _versions_to_delete(
    ask: AskRegistry, subject: str, version: int | None, *, permanent: bool
) -> list[dict[str, Any]]:
    """Return the versions to delete. Raises an error if one of them cannot be deleted, before the user is asked to
    confirm."""
    if version is None:
        chosen = ask("versions", subject=subject, deleted=True)["versions"]
    else:
        chosen = [ask("get", subject=subject, version=version)]
    living = [each for each in chosen if not each["deleted"]]
    if permanent and living:
        raise InvalidRequest(f"{_version_list(subject, living)}: not deleted yet; delete it without --permanent first")
    if not permanent and not living:
        raise InvalidRequest(
            f"{_version_list(subject, chosen)}: deleted before; `penstock schema undelete` brings it back, --permanent"
            " deletes it for good"
        )
    return chosen if permanent else living


def _question(subject: str, versions: list[dict[str, Any]], *, permanent: bool) -> str:
    what = _version_list(on_one_line(subject), versions)
    if permanent:
        return f"{what} would be gone for good, and what was written with it could not be decoded any more. Delete?"
    return (
        f"{what} would be deleted, and topics of this subject refuse messages that name it; `undelete` brings it back."
        " Delete?"
    )


def _version_list(subject: str, versions: list[dict[str, Any]]) -> str:
    shown = ", ".join(f"{each['version']} (id {each['id']})" for each in versions[:_NAMED_MAX])
    more = f" and {len(versions) - _NAMED_MAX} more" if len(versions) > _NAMED_MAX else ""
    return f"{subject} version {shown}{more}"


@opt.bundled
def undelete(broker: opt.BrokerOptions, subject: Subject, version: OneVersion = None, json: opt.Json = False) -> None:
    """Bring back what was deleted, and not yet for good: a version, or all of a subject.

    Examples:

    `penstock schema undelete orders-value`

    `penstock schema undelete orders-value --version 1`
    """
    with registry_client(broker) as ask:
        done = ask("undelete", subject=subject, **_version_field(version))["versions"]
    if not done:
        what = "no version of it is" if version is None else f"version {version} is not"
        raise InvalidRequest(f"{subject}: {what} deleted: there is nothing to bring back")
    _print_done(subject, done, "back", json=json)


def _version_field(version: int | None) -> dict[str, int]:
    return {} if version is None else {"version": version}


def _print_done(subject: str, versions: list[int], done: str, *, json: bool) -> None:
    if json:
        print_json({"subject": subject, "versions": versions, "done": done})
    else:
        typer.echo(f"{on_one_line(subject)}: {done}: version {', '.join(map(str, versions))}")
