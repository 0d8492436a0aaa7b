"""`penstock schema`: register, check and read schemas of a broker."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import on_one_line, print_json, table, time_text
from penstock.cli.registry import diff, subjects, transfer
from penstock.cli.registry.registry_calls import (
    AskRegistry,
    Deleted,
    Subject,
    has_versions,
    hint_at_similar,
    registry_client,
    similar_subjects,
)
from penstock.cli.registry.verdict import print_verdict
from penstock.cli.schema_source import File, SchemaInput, naming_file, parse_version
from penstock.core.errors import InvalidRequest, PenstockError

app = typer.Typer(help="Schemas: register, get, check, compare, configure, delete, export.", no_args_is_help=True)

_INCOMPATIBLE = 409


# registering


@app.command()
@opt.bundled
def register(
    broker: opt.BrokerOptions,
    schema_input: SchemaInput,
    subject: Subject,
    file: File = None,
    description: Annotated[str | None, typer.Option(help="What this version is, in a sentence.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word to find it by, may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be: as `check`.")] = False,
    json: opt.Json = False,
) -> None:
    """Register a schema as the next version of a subject; one that is there already stays as it is.

    Its type is seen from the file: .avsc, .proto, or what is in it.

    Examples:

    `penstock schema register orders-value order.avsc --description 'with a currency'`

    `penstock schema register orders-value order.proto --reference money.proto=money:1 --dry-run`

    `penstock schema register prices-value --type number`
    """
    schema = schema_input.read(file)
    words = {"description": description, "tags": tag}
    description_fields = {name: value for name, value in words.items() if value}
    with registry_client(broker) as ask, naming_file(file):
        if dry_run:
            _check(ask, subject, schema, json=json)
            return
        known = has_versions(ask, subject)
        registered = _register(ask, subject, schema | description_fields, json=json)
        if not json:
            typer.echo(
                f"{on_one_line(subject)}: version {registered['version']}, id {registered['id']} ({registered['type']})"
            )
            _hint(ask, registered, description_fields, known=known)
    if json:
        print_json(registered)


def _hint(ask: AskRegistry, registered: dict[str, Any], words: dict[str, Any], *, known: bool) -> None:
    """Print a hint if the subject is new and may be a typo; or if the version existed already, and so keeps its own
    description and tags."""
    if not known:
        hint_at_similar(ask, registered["subject"])
    elif (
        words
        and not words.items() <= ask("get", **_version_fields(registered["subject"], registered["version"])).items()
    ):
        sys.stderr.write(
            f"penstock: version {registered['version']} was there already, with other words: `penstock schema describe`"
            " changes them\n"
        )


def _register(ask: AskRegistry, subject: str, fields: dict[str, Any], *, json: bool) -> dict[str, Any]:
    """Register a schema and return the answer. If it is incompatible with earlier versions, print every problem, unless
    `json` is set, and raise `InvalidRequest`."""
    try:
        return ask("register", subject=subject, **fields)
    except PenstockError as error:
        problems: Any = error.details.get("problems")
        if json or error.details.get("registry_code") != _INCOMPATIBLE or not problems:
            raise
        mode = error.details.get("compatibility")
        facts = {"compatible": False, "compatibility": mode, "problems": problems}
        print_verdict(subject, facts, stderr=True)
        raise InvalidRequest(f"{subject} takes no such version: nothing was registered") from None


@app.command()
@opt.bundled
def check(
    broker: opt.BrokerOptions,
    schema_input: SchemaInput,
    subject: Subject,
    file: File = None,
    against: Annotated[
        str | None, typer.Option(help="One version, or latest. Default: all that the subject demands.", metavar="N")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Say whether a schema could be the next version of a subject; if not, why, and what would mend it.

    Exit code 1 if it could not. A subject without versions takes anything: it says so, in case its name is mistyped.

    Examples:

    `penstock schema check orders-value order.avsc`

    `penstock schema check orders-value order.avsc --against 2 --json`
    """
    asked = schema_input.read(file)
    if against is not None:
        asked["version"] = parse_version("--against", against)
    with registry_client(broker) as ask, naming_file(file):
        _check(ask, subject, asked, json=json)


def _check(ask: AskRegistry, subject: str, asked: dict[str, Any], *, json: bool) -> None:
    verdict = ask("check", subject=subject, **asked)
    verdict["new_subject"] = not has_versions(ask, subject)
    if json:
        close = {"similar": similar_subjects(ask, subject)} if verdict["new_subject"] else {}
        print_json({"subject": subject} | verdict | close)
    else:
        print_verdict(subject, verdict)
        if verdict["new_subject"]:
            hint_at_similar(ask, subject)
    if not verdict["compatible"]:
        raise typer.Exit(EXIT_FINDINGS)


# reading


@app.command()
@opt.bundled
def get(
    broker: opt.BrokerOptions,
    subject: Annotated[str | None, typer.Argument(help="The subject; or give --id.")] = None,
    version: Annotated[str | None, typer.Option(help="A number, or latest, which is the default.")] = None,
    id_: Annotated[
        int | None, typer.Option("--id", min=1, help="The schema with this id, whatever its subject.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Print a schema as it was registered, byte for byte; with --json all that is known of it.

    Examples:

    `penstock schema get orders-value`

    `penstock schema get orders-value --version 2 --json`

    `penstock schema get --id 7`
    """
    if (subject is None) is (id_ is None) or (version is not None and subject is None):
        raise InvalidRequest("name a subject, with --version if it is not the latest, or give --id alone")
    request = (
        {"id": id_} if subject is None else _version_fields(subject, parse_version("--version", version or "latest"))
    )
    with registry_client(broker) as ask:
        answer = ask("get", **request)
    if json:
        print_json(answer)
        return
    if answer.get("deleted"):
        sys.stderr.write(f"penstock: version {answer['version']} of {on_one_line(answer['subject'])} is deleted\n")
    _write(answer["schema"])


def _version_fields(subject: str, version: int | str) -> dict[str, Any]:
    return {"subject": subject, "version": version}


def _write(text: str) -> None:
    """Write a schema: to a terminal by lines and without control characters, to anything else byte for byte."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stdout.writelines(f"{on_one_line(line.expandtabs(4))}\n" for line in text.splitlines())
    else:
        sys.stdout.buffer.write(text.encode())


@app.command("ls")
@opt.bundled
def list_(
    broker: opt.BrokerOptions,
    prefix: Annotated[str, typer.Argument(help="Only subjects that begin so.")] = "",
    deleted: Deleted = False,
    json: opt.Json = False,
) -> None:
    """List subjects, one a line.

    Examples:

    `penstock schema ls`

    `penstock schema ls orders --deleted --json`
    """
    with registry_client(broker) as ask:
        answer = ask("subjects", prefix=prefix)
        living = set(answer["subjects"])
        if deleted:
            answer = ask("subjects", prefix=prefix, deleted=True)
    names = answer["subjects"]
    if not names and not json:
        typer.echo(_no_subjects(prefix))
    for name in names:
        if json:
            print_json({"subject": name, "deleted": name not in living})
        else:
            typer.echo(on_one_line(name) + ("" if name in living else "  (deleted)"))
    _tell_truncated(answer, len(names), "name more of the beginning")


def _no_subjects(prefix: str) -> str:
    if prefix:
        return f"no subjects begin with {on_one_line(prefix)}: penstock schema ls lists all there are"
    return "no subjects yet: penstock schema register SUBJECT FILE"


def _tell_truncated(answer: dict[str, Any], shown: int, advice: str) -> None:
    if answer.get("truncated"):
        sys.stderr.write(f"penstock: {shown:,} of {answer['total']:,} are shown: {advice}\n")


@app.command()
@opt.bundled
def versions(broker: opt.BrokerOptions, subject: Subject, deleted: Deleted = False, json: opt.Json = False) -> None:
    """List the versions of a subject: id, type, when and by whom, what is said about it.

    Examples:

    `penstock schema versions orders-value`

    `penstock schema versions orders-value --deleted --json`
    """
    with registry_client(broker) as ask:
        answer = ask("versions", subject=subject, deleted=deleted)
    entries = answer["versions"]
    if json:
        for facts in entries:
            print_json(facts)
    else:
        columns = ("version", "id", "type", "created", "by", "state", "description", "tags")
        table(on_one_line(subject), columns, [_row(facts) for facts in entries])
    _tell_truncated(answer, len(entries), "penstock schema export has all of them")


def _row(facts: dict[str, Any]) -> list[Any]:
    created = time_text(facts["created_ms"])
    numbers = [str(facts["version"]), str(facts["id"])]  # names rather than numbers: no thousands separators
    words = [facts.get("created_by"), _state(facts), facts.get("description"), ", ".join(facts.get("tags", ()))]
    return [*numbers, facts["type"], created, *(each or None for each in words)]


def _state(facts: dict[str, Any]) -> str:
    words = ["deleted"] if facts.get("deleted") else []
    if facts.get("deprecated") is not None:
        words.append(f"deprecated: {facts['deprecated']}")
    return "; ".join(words)


app.command("diff")(diff.diff)
app.command("config")(subjects.config)
app.command("describe")(subjects.describe)
app.command("deprecate")(subjects.deprecate)
app.command("delete")(subjects.delete)
app.command("undelete")(subjects.undelete)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
