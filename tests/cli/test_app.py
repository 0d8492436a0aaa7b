"""The behaviour that all commands share: help, versions, errors, exit codes, broken pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from tests.cli.kit import Fill, Run, Start

import penstock
from penstock.cli import app as application
from penstock.cli import output
from penstock.cli.app import run
from penstock.record.message import Message

COMMANDS = [
    "log create",
    "log append",
    "log read",
    "log import",
    "log info",
    "segment ls",
    "segment dump",
    "segment verify",
    "bench log",
    "bench wire",
    "bench stream",
    "bench schema",
    "bench http",
    "bench operations",
    "bench spark",
    "topic create",
    "topic ls",
    "topic describe",
    "topic alter",
    "topic delete",
    "topic namespace",
    "topic browse",
    "topic get",
    "connection ls",
    "connection close",
    "topic schema show",
    "topic schema set",
    "produce",
    "consume",
    "sub ls",
    "sub describe",
    "sub create",
    "sub seek",
    "sub pause",
    "sub resume",
    "sub skip",
    "sub delete",
    "dlq ls",
    "dlq show",
    "dlq redrive",
    "dlq drop",
    "schema register",
    "schema check",
    "schema get",
    "schema ls",
    "schema versions",
    "schema describe",
    "schema diff",
    "schema config",
    "schema deprecate",
    "schema delete",
    "schema undelete",
    "schema export",
    "schema import",
    "serve",
    "publish",
    "subscribe",
    "request",
    "respond",
    "ping",
    "services",
    "archive",
    "audit",
    "stats",
    "replay",
    "compact",
    "export",
    "import",
    "lake show",
    "lake compact",
    "lake vacuum",
    "lake expire",
    "pipeline run",
    "pipeline validate",
    "pipeline explain",
    "key create",
    "key ls",
    "key revoke",
    "access grant",
    "access revoke",
    "access show",
    "backup create",
    "backup verify",
    "restore",
    "top",
    "doctor",
    "warm",
    "demo",
]
GROUPS = [
    (),
    *((name,) for name in ("topic", "sub", "dlq", "connection", "schema", "log", "segment", "lake", "pipeline")),
    *((name,) for name in ("key", "access", "backup", "bench")),
    ("topic", "schema"),
]
HEAVY = ["numba", "llvmlite", "numpy", "pyarrow", "sqlalchemy", "msgspec", "asyncio", "picows", "structlog", "uvloop"]


TYPES: Final = {
    "produce": "The type of every message",
    "log append": "The type of every message",
    "schema register": "avro, json, protobuf",
    "schema check": "avro, json, protobuf",
    "consume": "Of the subscription",
    "sub create": "Of the subscription",
}
"""Commands that write or create something with a type, and the words that say so in the help of `--type`."""


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
    for each, child in (below or {}).items():
        yield from leaves(child, f"{name} {each}".strip())


TREE: Final = dict(leaves(typer.main.get_command(application.app)))


def options_called(spelling: str) -> dict[str, Any]:
    """Return the option with that spelling, by command."""
    return {name: each for name, command in TREE.items() for each in command.params if spelling in each.opts}


def test_the_commands_are_these() -> None:
    assert sorted(TREE) == sorted(COMMANDS)


def test_a_type_is_what_something_is_on_the_whole_command_line_and_never_a_filter() -> None:
    found = options_called("--type")
    assert all(option.opts == ["--type"] for option in found.values())
    shown = {name: option.help for name, option in found.items() if not option.hidden}
    assert sorted(shown) == sorted(TYPES)
    assert [name for name, words in TYPES.items() if words not in shown[name]] == []


@pytest.mark.parametrize("command", sorted(options_called("--only-type").keys() - TYPES.keys()))
def test_a_filter_by_its_former_name_is_refused_with_the_name_that_it_has(here: Run, home: Path, command: str) -> None:
    here(*command.split(), "--type", "order.*", "orders").refused("--only-type 'order.*' lets through only messages")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(here: Run, command: str) -> None:
    shown = here(*command.split(), "--help")
    assert shown.code == 0
    assert "Example" in shown.out
    assert f"penstock {command}" in " ".join(shown.out.replace("│", " ").split())


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_shows_what_it_can_do_and_is_not_done(here: Run, group: tuple[str, ...]) -> None:
    shown = here(*group)
    assert shown.code == 2
    assert "Usage: penstock" in shown.out + shown.err


def test_the_version_is_the_packages(here: Run) -> None:
    assert (here("--version").code, here("--version").out) == (0, f"penstock {penstock.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["log", "nonsense"], "No such command 'nonsense'"),
        (["log", "read"], "Missing argument"),
        (["log", "read", "orders", "--nonsense"], "No such option"),
        (["log", "read", "orders", "--limit", "0"], "--limit"),
        (["log", "read", "orders", "--limit", "few"], "--limit"),
        (["log", "create", "orders", "--partitions", "many"], "--partitions"),
        (["segment", "verify", "x", "--jobs", "0"], "--jobs"),
        (["bench", "log", "--megabytes", "0"], "--megabytes"),
        (["bench", "log", "--megabytes", "1000000"], "--megabytes"),
        (["demo", "--messages", "1"], "--messages"),
    ],
)
def test_a_wrong_command_line_is_explained(here: Run, home: Path, arguments: list[str], words: str) -> None:
    shown = here(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert words in shown.err
    assert "--help" in shown.err or "-h" in shown.err
    assert list(home.iterdir()) == []


def test_an_error_is_a_sentence_with_its_code(here: Run) -> None:
    here("log", "info", "--data", "nowhere").refused(
        "INVALID_REQUEST: ", "nowhere is not a Penstock data directory", "penstock log create"
    )


def test_an_error_is_json_where_json_is_asked_for(here: Run, fill: Fill) -> None:
    fill([b"a"])
    shown = here("log", "read", "orders", "--from", "7", "--json")
    assert (shown.code, shown.out) == (2, "")
    assert shown.error["code"] == "OFFSET_OUT_OF_RANGE"
    assert "offset 7 is not in the log" in shown.error["message"]
    assert shown.error["details"] == {"offset": 7, "first_offset": 0, "next_offset": 1}


@pytest.mark.parametrize(
    "command", [["log", "info"], ["log", "read", "orders"], ["segment", "verify", "penstock-data"]]
)
def test_what_the_system_refuses_is_a_sentence_too(
    here: Run, fill: Fill, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    root = fill([b"a"])

    def refuse(*_: object) -> Any:
        raise PermissionError(13, "Permission denied", str(root / "topics"))

    monkeypatch.setattr("os.listdir", refuse)
    monkeypatch.setattr("os.scandir", refuse)
    here(*command).refused("STORAGE_FAILED", "penstock-data/topics", "Permission denied")


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(application, "app", broken)
    with pytest.raises(ZeroDivisionError):
        run(["log", "info"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, typer.Abort])
def test_an_interrupted_command_says_130(monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(application, "app", interrupted)
    assert run(["log", "info"]) == 130


def python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


BLOCKED = """
import sys
for name in {names!r}:
    sys.modules[name] = None
from penstock.cli.app import run
code = run({arguments!r})
print([name for name in {heavy!r} if sys.modules.get(name)])
sys.exit(code)
"""


def blocked(names: list[str], *arguments: str) -> str:
    """Build a Python program that runs a command where some packages are not installed."""
    return BLOCKED.format(names=names, arguments=list(arguments), heavy=HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["log", "read", "--help"], ["consume", "--help"], ["schema", "check", "--help"]],
)
def test_help_needs_nothing_heavy_and_loads_nothing_heavy(environment: dict[str, str], arguments: list[str]) -> None:
    assert python(blocked([], *arguments), environment).stdout.splitlines()[-1] == "[]"
    assert python(blocked(HEAVY, *arguments), environment).returncode == 0


@pytest.mark.parametrize(
    ("name", "arguments", "extra"),
    [
        ("numba", ["log", "create", "orders"], "server"),
        ("numba", ["segment", "verify", "."], "server"),
        ("numpy", ["warm"], "stream"),
        ("sqlalchemy", ["log", "append", "orders"], "server"),
        ("msgspec", ["demo"], "server"),
        ("pyarrow", ["archive", "orders"], "spark"),
    ],
)
def test_a_missing_extra_is_named_with_how_to_get_it(
    environment: dict[str, str], home: Path, name: str, arguments: list[str], extra: str
) -> None:
    done = python(blocked([name], *arguments), environment)
    assert done.returncode == 2
    assert done.stderr == f"penstock: this needs the package '{name}': pip install 'penstock[{extra}]'\n"
    assert list(home.iterdir()) == []


def test_a_module_of_our_own_that_is_missing_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(name="penstock.storage.nonsense")

    monkeypatch.setattr(application, "app", broken)
    with pytest.raises(ModuleNotFoundError):
        run(["log", "info"])


def test_output_into_head_ends_quietly(start: Start, fill: Fill) -> None:
    fill([b"x" * 1000 for _ in range(2000)])
    for options in ([], ["--json"], ["--payload"]):
        with start("log", "read", "orders", *options) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(60) == 0
            assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_not_lost_in_silence(apart: Run, fill: Fill) -> None:
    fill([b"x"])
    with Path("/dev/full").open("wb") as full:
        done = apart("log", "read", "orders", stdout=full)
    assert done.code == 2
    assert done.err.startswith("penstock: DISK_FULL: ")
    assert len(done.err.splitlines()) == 1


def test_messages_are_shown_where_the_terminal_knows_only_ascii(
    apart: Run, environment: dict[str, str], fill: Fill
) -> None:
    fill([Message(payload='{"price": "5 €", "bad": "\\ud800"}'.encode(), type="Größe")])
    limited = environment | {"PYTHONIOENCODING": "ascii"}
    for options in ([], ["--json"]):
        done = apart("log", "read", "orders", *options, env=limited)
        assert (done.code, done.err) == (0, "")
        assert "20ac" in done.out
        assert "Gr" in done.out


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes_are_shown_in_the_unit_that_fits(size: int, text: str) -> None:
    assert output.bytes_text(size) == text


@pytest.mark.parametrize(("ms", "text"), [(0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z")])
def test_times_are_shown_in_utc_with_milliseconds(ms: int, text: str) -> None:
    assert output.time_text(ms) == text


def test_a_time_that_no_calendar_holds_is_shown_as_a_number() -> None:
    assert output.time_text(2**62) == f"{2**62} ms"


UNRAISABLE: Final = """
import sys
from penstock import cli

class Closes:
    def __init__(self, error):
        self.error = error

    def __del__(self):
        raise self.error

cli.app = type(sys)("penstock.cli.app")
cli.app.run = lambda: 0
sys.modules["penstock.cli.app"] = cli.app
try:
    cli.main()
except SystemExit:
    Closes(BrokenPipeError(32, "Broken pipe"))
    Closes(ConnectionResetError())
    Closes(ValueError("a defect"))
"""


def test_whoever_has_hung_up_is_no_news_at_the_end_and_a_defect_is(environment: dict[str, str]) -> None:
    """Since 3.13 Python reports each file that cannot be closed."""
    done = python(UNRAISABLE, environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert "a defect" in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert "ConnectionReset" not in done.stderr
