"""`penstock dlq`: show, send back and drop dead letters: messages whose delivery failed too often."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.message_format import as_json, print_record
from penstock.cli.output import bytes_text, confirm, many, on_one_line, print_json, table
from penstock.cli.policy_advice import is_nameless, nameless_advice
from penstock.core.dead_letter_attributes import REDRIVES_CEILING, REDRIVES_MAX
from penstock.core.errors import Code, PenstockError, error_from_dict

if TYPE_CHECKING:
    from penstock.client.consume.dead_letters import DeadLetters, Letter, Refusal, Which

app = typer.Typer(help="Dead letters: list, show, redrive, drop.", no_args_is_help=True)

_REFUSALS_SHOWN: Final = 3
"""The most refused letters that are described. Most of them have the same problem."""

Original = Annotated[str, typer.Argument(help="The topic that the messages failed in, such as /shop/orders.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """The options that filter dead letters."""

    only_type: opt.OnlyType = None
    former_type: opt.FormerType = None
    reason: Annotated[str | None, typer.Option(help="Only reasons that match this glob.")] = None
    subscription: Annotated[str | None, typer.Option(help="Only those that failed in this subscription.")] = None

    def which(self) -> Which:
        from penstock.client.consume.dead_letters import Which

        return Which(type=self.only_type, reason=self.reason, subscription=self.subscription)


@app.command("ls")
@opt.bundled
def list_(broker: opt.BrokerOptions, json: opt.Json = False) -> None:
    """List topics with dead letters: how many are left to deal with, how many are kept.

    Example: `penstock dlq ls --json`
    """
    from penstock.client.consume.dead_letters import listed

    with broker.connect() as client:
        topics = list(listed(client))
    if json:
        for facts in topics:
            print_json(facts)
    elif not topics:
        typer.echo("no dead letters")
    else:
        columns = ("topic", "left", "kept", "bytes", "where they lie")
        rows = [
            (topic["topic"], topic["left"], topic["messages"], bytes_text(topic["bytes"]), topic["dead_letters"])
            for topic in topics
        ]
        table("dead letters", columns, rows)


@app.command()
@opt.bundled
def show(
    broker: opt.BrokerOptions, which: LetterFilter, topic: Original, limit: opt.Limit = None, json: opt.Json = False
) -> None:
    """Show the dead letters that are left, with why each of them failed.

    Examples:

    `penstock dlq show orders.created --limit 10`

    `penstock dlq show /shop/orders --reason '*timeout*' --json`
    """
    from penstock.client.consume.dead_letters import DeadLetters

    with broker.connect() as client:
        for letter in DeadLetters(client, topic).letters(which.which(), limit):
            _print(letter, json=json)


def _print(letter: Letter, *, json: bool, **facts: Any) -> None:
    if json:
        print_json(facts | as_json(letter.record))
    else:
        print_record(letter.record)


@app.command()
@opt.bundled
def redrive(
    broker: opt.BrokerOptions,
    which: LetterFilter,
    topic: Original,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Send back at most so many.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="At most so many a second.")] = None,
    max_redrives: Annotated[
        int, typer.Option(min=1, max=REDRIVES_CEILING, help="Leave those that were sent back so often.")
    ] = REDRIVES_MAX,
    json: opt.Json = False,
) -> None:
    """Send dead letters back to the topic they came from. Each is sent once, whatever happens in between.

    Examples:

    `penstock dlq redrive orders.created --dry-run`

    `penstock dlq redrive orders.created --reason '*timeout*' --rate 100`
    """
    from penstock.client.consume.dead_letters import DeadLetters

    with broker.connect() as client:
        letters = DeadLetters(client, topic)
        if dry_run:
            _print_plan(letters, which.which(), max_redrives, limit, json=json)
            return
        with _summary_on_failure(letters, _redrive_text):
            letters.redrive(which.which(), redrives_max=max_redrives, limit=limit, rate=rate)
    if letters.progress.refused:
        raise _refusal(letters)
    if json:
        print_json(_facts(letters))
    else:
        typer.echo(_redrive_text(letters))


def _print_plan(letters: DeadLetters, which: Which, redrives_max: int, limit: int | None, *, json: bool) -> None:
    for letter in letters.plan(which, redrives_max=redrives_max, limit=limit):
        if json:
            _print(letter, json=True, verdict=letter.verdict)
        else:
            typer.echo(f"{letter.offset}  {letter.verdict}  {on_one_line(letter.reason)}")


@contextmanager
def _summary_on_failure(letters: DeadLetters, text_of: Callable[[DeadLetters], str]) -> Iterator[None]:
    """If the context fails, add the counts so far to the error; if it is interrupted, print them."""
    try:
        yield
    except PenstockError as error:
        raise type(error)(f"{error.message}; before that: {text_of(letters)}", **error.details) from error
    except (KeyboardInterrupt, SystemExit):
        sys.stderr.write(f"penstock: interrupted: {text_of(letters)}\n")
        raise


def _refusal(letters: DeadLetters) -> PenstockError:
    """Build the error for letters that their topic refuses to take back, with the reasons and advice."""
    progress, refusals = letters.progress, letters.progress.refusals[:_REFUSALS_SHOWN]
    words = [f"{_place(refusal)}: {on_one_line(refusal.message)}" for refusal in refusals]
    if progress.refused > len(refusals):
        words.append(f"{progress.refused - len(refusals):,} more")
    advice = dict.fromkeys(_advice(refusal, str(letters.original)) for refusal in refusals)
    words += [*advice, "`penstock dlq drop` gives up what is left", f"all in all: {_redrive_text(letters)}"]
    return error_from_dict({"code": refusals[0].code, "message": "; ".join(words), "details": _facts(letters)})


def _place(refusal: Refusal) -> str:
    text = f"the dead letter at offset {refusal.offset}"
    return f"{text} of partition {refusal.partition}" if refusal.partition else text


def _advice(refusal: Refusal, topic: str) -> str:
    if refusal.code != Code.SCHEMA_REJECTED:
        return f"`penstock topic describe {topic}` has its limits"
    if is_nameless(refusal.message):
        return nameless_advice(topic)
    return f"`penstock topic schema show {topic}` has its rules"


def _facts(letters: DeadLetters) -> dict[str, Any]:
    progress = letters.progress
    names = ("redriven", "repeated", "too_often", "strangers", "refused")
    facts: dict[str, Any] = {"topic": str(letters.original)} | {name: getattr(progress, name) for name in names}
    return facts | ({"refusals": [asdict(refusal) for refusal in progress.refusals]} if progress.refusals else {})


def _redrive_text(letters: DeadLetters) -> str:
    progress = letters.progress
    words = [f"{many(progress.redriven, 'dead letter')} sent back to {letters.original}"]
    if progress.repeated:
        words.append(f"{progress.repeated:,} of them before this")
    if progress.too_often:
        words.append(f"{progress.too_often:,} left: sent back too often already")
    if progress.strangers:
        words.append(f"{progress.strangers:,} left: not dead letters of this topic")
    if progress.refused:
        words.append(f"{progress.refused:,} left: refused")
    return ", ".join(words)


@app.command()
@opt.bundled
def drop(
    broker: opt.BrokerOptions,
    which: LetterFilter,
    topic: Original,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Drop at most so many.")] = None,
    yes: opt.Yes = False,
    json: opt.Json = False,
) -> None:
    """Acknowledge dead letters without sending them back; says how many, and asks. They stay in their topic's log.

    Examples:

    `penstock dlq drop orders.created --only-type 'order.test'`

    `penstock dlq drop orders.created --yes`
    """
    from penstock.client.consume.dead_letters import DeadLetters

    with broker.connect() as client:
        letters = DeadLetters(client, topic)
        matching = letters.find(which.which(), limit)
        if matching.count:
            confirm(f"{many(matching.count, 'dead letter')} of {letters.original} would be dropped. Drop?", yes=yes)
            with _summary_on_failure(letters, _drop_text):
                letters.drop(matching)
    if json:
        print_json({"topic": str(letters.original), "dropped": letters.progress.dropped})
    else:
        typer.echo(_drop_text(letters))


def _drop_text(letters: DeadLetters) -> str:
    return f"{many(letters.progress.dropped, 'dead letter')} of {letters.original} dropped"
