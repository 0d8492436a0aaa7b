"""The documentation is true: what it names exists, what exists is named, and what it tells to run runs."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from tests.cli.kit import child_environment
from tests.ports import free_ports

import penstock
from penstock.broker.admin.operations import TOPICS
from penstock.cli.app import app
from penstock.core import errors, limits
from penstock.core.errors import Code, PenstockError
from penstock.core.limits import Limits, WireLimits
from penstock.protocol.actions import Action
from penstock.protocol.header import FIELDS, HEADER_BYTES_MAX
from penstock.protocol.notices import ACTIVE, CLOSING, ENDED, FENCED, GAP, INITIALIZE, LOG, SOUGHT
from penstock.server.settings import LIMITS, SETTINGS, STORAGE, Settings, load
from penstock.testing import RunningBroker

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SECONDS: Final = 500
"""For what is typed: each command is a process, and a busy machine starts few of them a second."""
PAGES: Final = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
CLASSES: Final = {
    each.code: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)
}


def section(page: Path, heading: str) -> str:
    """From a heading on up to the next of its rank."""
    return re.split(r"^## ", page.read_text().split(f"## {heading}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(page: Path, *, below: str = "") -> dict[str, list[str]]:
    """The rows of all tables of a page, or of a section of it, by what stands first in them."""
    found = {}
    for line in (section(page, below) if below else page.read_text()).splitlines():
        if line.startswith("| `"):
            first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            found[first.strip("`")] = rest
    return found


def blocks(page: Path, language: str, *, below: str = "") -> list[str]:
    """The code blocks of a page, or of a section of it, in a language."""
    text = section(page, below) if below else page.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


# errors and limits


def test_every_error_code_has_a_row_and_every_row_a_code() -> None:
    assert list(rows(DOCS / "errors.md")) == [code.value for code in Code]


@pytest.mark.parametrize("code", list(Code))
def test_an_error_row_says_whether_trying_again_helps_and_what_to_do(code: Code) -> None:
    meaning, again, todo = rows(DOCS / "errors.md")[code.value]
    assert again == ("yes" if CLASSES[code].retriable else "no")
    assert len(meaning) > 10
    assert len(todo) > 5


def documented(source: Path) -> Iterator[tuple[str, str, str]]:
    """Every name of a module or of its classes that has a text below it: where, the name, the text on one line."""
    for node in ast.walk(ast.parse(source.read_text())):
        body = getattr(node, "body", None)
        for one, other in pairwise(body) if isinstance(body, list) else ():
            match one, other:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield getattr(node, "name", ""), name, " ".join(text.split())


CONSTANTS: Final = [name for name in vars(limits) if re.fullmatch(r"[A-Z][A-Z_]*_(MAX|CEILING|FLOOR)", name)]
LIMIT_PAGES: Final[list[tuple[str, Any, list[str]]]] = [
    ("What an operator may set", Limits(), [field.name for field in fields(Limits)]),
    ("What an operator may set for the wire", WireLimits(), [field.name for field in fields(WireLimits)]),
    ("What the formats set", limits, CONSTANTS),
]
"""Each section of the page: where its values come from, and their names."""


REASONS: Final = {(where, name): text for where, name, text in documented(Path(str(limits.__file__)))}


def shown(value: int | None) -> set[str]:
    """The ways to write a number of bytes, milliseconds or things."""
    if value is None:
        return {"none"}
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "days": 86_400_000}
    return {f"{value:,}"} | {f"{value // size:,} {unit}" for unit, size in units.items() if not value % size}


@pytest.mark.parametrize(("heading", "source", "names"), LIMIT_PAGES, ids=[heading for heading, _, _ in LIMIT_PAGES])
def test_the_limits_of_the_page_are_the_limits_there_are_with_value_and_reason(
    heading: str, source: Any, names: list[str]
) -> None:
    found = rows(DOCS / "limits.md", below=heading)
    assert len(names) >= 10
    assert sorted(found) == sorted(names)
    for name, (value, reason) in found.items():
        assert value in shown(getattr(source, name)), name
        assert reason == REASONS["" if source is limits else type(source).__name__, name]


# the protocol and the settings


def test_every_field_of_the_header_is_documented_with_its_length() -> None:
    found = rows(DOCS / "protocol.md", below="The header")
    assert {name: int(cells[1]) for name, cells in found.items()} == {field.name: field.chars_max for field in FIELDS}
    assert f"{HEADER_BYTES_MAX} bytes" in section(DOCS / "protocol.md", "The header")


def test_every_action_is_documented() -> None:
    assert list(rows(DOCS / "protocol.md", below="Actions")) == [action.value for action in Action]


def test_every_system_topic_is_documented() -> None:
    told = {INITIALIZE, LOG, CLOSING, ACTIVE, ENDED, SOUGHT, GAP, FENCED}
    assert set(rows(DOCS / "protocol.md", below="System topics")) == told | set(TOPICS)


def test_every_setting_is_documented_with_its_variable_and_default() -> None:
    found = rows(DOCS / "settings.md")
    wanted = {f"{each.section}.{each.key}": each for each in SETTINGS if each.section not in (LIMITS, STORAGE)}
    assert set(found) == {*wanted, "limits.*", "storage.*"}
    for name, setting in wanted.items():
        variable, default, _ = found[name]
        value = getattr(Settings(), setting.name)
        assert variable.strip("`") == setting.variable
        assert default.strip("`") == ("none" if value in (None, ()) else str(value).lower())


def test_the_settings_file_of_the_page_is_understood(tmp_path: Path) -> None:
    (block,) = blocks(DOCS / "settings.md", "toml")
    file = tmp_path / "penstock.toml"
    file.write_text(block)
    found = load(file, {})
    assert (found.ws_port, found.limits.payload_bytes_max, found.limits.request_timeout_ms) == (None, 4 << 20, 10_000)


# commands


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the tree that does something, by its full name."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(words), command
    for name, child in (below or {}).items():
        yield from commands(child, (*words, name))


COMMANDS: Final = dict(commands(typer.main.get_command(app), ("penstock",)))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    headings = re.findall(r"^## (.*)$", (DOCS / "commands.md").read_text(), flags=re.MULTILINE)
    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_its_purpose_and_an_example(name: str) -> None:
    section = (DOCS / "commands.md").read_text().split(f"## {name}\n")[1].split("\n## ")[0]
    purpose = " ".join(str(COMMANDS[name].help).split("\n\n")[0].split()).rstrip(".")
    assert purpose[:20] in section
    assert any(name in block for block in blocks(DOCS / "commands.md", "sh", below=name))


def called(line: str) -> tuple[str, list[str]] | None:
    """The command in a line of shell, and its arguments; None if it is not one of ours."""
    words = shlex.split(line.rpartition(" | ")[2])
    while words and "=" in words[0]:
        del words[0]
    words = words[: next((place for place, word in enumerate(words) if word.startswith("<")), None)]
    if not words or words[0] != "penstock":
        return None
    words = words[: next((place for place, word in enumerate(words) if word in ("&", "||", "2>/dev/null;")), None)]
    length = next(size for size in (4, 3, 2) if " ".join(words[:size]) in COMMANDS)
    return " ".join(words[:length]), words[length:]


EXAMPLES: Final = [
    *(line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()),
    *(line for each in COMMANDS.values() for line in re.findall(r"`([^`]*penstock [^`]*)`", str(each.help))),
]
OURS: Final = [line for line in EXAMPLES if called(line)]


@pytest.mark.parametrize("line", OURS)
def test_an_example_is_a_command_line_that_is_understood(line: str) -> None:
    found = called(line)
    assert found is not None
    name, arguments = found
    COMMANDS[name].make_context(name, arguments)


def test_every_command_has_an_example() -> None:
    assert {found[0] for line in OURS if (found := called(line))} == set(COMMANDS)


# README


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker as a reader has it who types the first program: the pages share names of topics."""
    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        yield running


def test_the_client_of_the_readme_runs(
    fresh: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", fresh.url)
    (block,) = blocks(ROOT / "README.md", "python", below="A first look")
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said == ["0 order.created {'order': 1}", "{'order': 2}", "b'12.50'"]


def test_the_programs_of_the_clients_page_run(
    fresh: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", fresh.url)
    chat, streams, values = blocks(DOCS / "clients.md", "python")
    exec(compile(chat, "clients.md", "exec"), {})
    assert capsys.readouterr().out == "chat.room hello\n"
    exec(compile(streams, "clients.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["0", "0 b'customer-7' {'order': 1} {'traceparent': '00-4bf9-01'}"]
    assert said[-1].startswith("{'offset': [0, 1, 2], 'type': ['order.created', 'order.created', 'order.created'],")
    exec(compile(values, "clients.md", "exec"), {"__name__": "__main__"})
    wrong, *orders, payment = capsys.readouterr().out.splitlines()
    assert wrong.startswith("/id the value does not fit version 1 of shop.orders-value at /id: ")
    assert orders == ["Order(id=1, lines=['tea']) 1", "Order(id=2, lines=[]) 1", "Order(id=3, lines=[]) 1"]
    assert payment == "{'cents': 1999}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_the_certificates_of_the_settings_page_work(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (recipe,) = blocks(DOCS / "settings.md", "sh")
    *making, _serve, _wait, _ping = recipe.splitlines()
    done = subprocess.run(
        ["sh", "-ec", "\n".join(making)], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    files = [f"--tls-{name}={tmp_path / name}.pem" for name in ("cert", "key", "ca")]
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key"))
    with RunningBroker(*files, environment=child_environment(tmp_path_factory)) as running:
        url = f"tls://localhost:{running.tcp_port}"
        with penstock.connect(url, tls_ca=ca, tls_cert=cert, tls_key=key) as client:
            assert client.ping() > 0
        with pytest.raises(penstock.errors.ServiceUnavailable, match="does it ask for a certificate of ours"):
            penstock.connect(url, tls_ca=ca)


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python", below="The log itself")
    exec(compile(block, "README.md", "exec"), {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "0 1"
    assert second == """0 order.created b'{"order": 1}'"""
    assert third == """{'offset': [0], 'type': ['order.created'], 'value': [b'{"order": 1}']}"""


def typed(script: str, place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What somebody types who has installed it, with free ports in the place of the usual ones."""
    tcp, http = free_ports(2)
    ports = {"PENSTOCK_TCP_PORT": str(tcp), "PENSTOCK_WS_PORT": "0", "PENSTOCK_HTTP_PORT": str(http)}
    more = {
        "PENSTOCK_URL": f"tcp://127.0.0.1:{tcp}",
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
    }
    return subprocess.run(
        ["sh", "-c", "set -e\n" + script.replace("localhost:7452", f"localhost:{http}")],
        cwd=place,
        env=environment | ports | more,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_what_the_readme_says_of_running_it_runs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (script,) = blocks(ROOT / "README.md", "sh", below="Running it")
    done = typed(script, tmp_path, child_environment(tmp_path_factory))
    assert done.returncode == 0, done.stderr
    for words in (
        '{"status":"ready"',
        'penstock_topic_messages{topic="/default/visits"} 1',
        '"next_offset":1',
        "topics by rate",
        "holds   1 topic, 1 partition, 1 message",
        "start it with: penstock serve --data restored",
    ):
        assert words in done.stdout


@pytest.mark.slow
def test_the_commands_of_the_security_page_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second = blocks(DOCS / "security.md", "sh")
    done = typed(f"trap 'kill $!' EXIT\n{first}{second}", tmp_path, child_environment(tmp_path_factory))
    assert done.returncode == 0, done.stderr
    assert "consumer@topic:/default/shop.#" in done.stdout
    assert done.stdout.endswith("key:shop has publisher@topic:/default/shop.orders\n")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_first_look_of_the_readme_runs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As it stands, but for installing what is installed already."""
    install, live, stop = blocks(ROOT / "README.md", "sh", below="A first look")
    assert install == "pip install 'penstock[server]'\n"
    (program,) = blocks(ROOT / "README.md", "python", below="A first look")
    (stored,) = blocks(ROOT / "README.md", "sh", below="The log itself")
    environment = child_environment(tmp_path_factory)
    (tmp_path / "live").mkdir()
    asked = typed(f"{live}python - <<'EOF'\n{program}EOF\n{stop}", tmp_path / "live", environment)
    assert asked.returncode == 0, asked.stderr
    assert '1 order.created customer-7 {"order": 2}' in asked.stdout
    assert 'event: order.created\ndata: {"order": 3}\n' in asked.stdout
    assert "billing" in asked.stdout
    assert asked.stdout.endswith("0 order.created {'order': 1}\n{'order': 2}\nb'12.50'\n"), "the broker is up for it"
    done = typed(stored, tmp_path, environment)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("created /default/orders", "1 message appended", '"cents": 1999', "key=customer-7", "1 record"):
        assert words in done.stdout
    assert done.stdout.endswith(": clean\n")


def test_the_commands_of_dev_are_the_ones_that_are_told_of() -> None:
    usable = set(re.findall(r"^([a-z]+)\)", (ROOT / "dev").read_text(), flags=re.MULTILINE))
    told = {name for page in PAGES for name in re.findall(r"\./dev ([a-z]+)", page.read_text())}
    assert told <= usable
    assert {"demo", "test", "quick", "check", "bench", "soak"} <= told


def test_the_contents_of_the_readme_are_its_headings() -> None:
    text = (ROOT / "README.md").read_text()
    told = re.findall(r"\[([^\]]+)\]\(#[a-z-]+\)", text.partition("\n## ")[0])
    assert told == re.findall(r"^## (.*)$", text, flags=re.MULTILINE)


# links


def anchors(page: Path) -> set[str]:
    """What a heading is called in an address."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS: Final = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    if not re.match(r"[a-z]+:", target)
]


@pytest.mark.parametrize(("page", "target"), LINKS, ids=[f"{page.name}-{target}" for page, target in LINKS])
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    assert found.exists()
    assert not anchor or anchor in anchors(found)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == DOCS], ids=lambda page: page.name)
def test_every_page_can_be_reached_from_the_readme(page: Path) -> None:
    assert f"docs/{page.name}" in (ROOT / "README.md").read_text()


# the package


LIGHT: Final = """
import sys
before = set(sys.modules)
import penstock
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""


def test_importing_penstock_brings_in_nothing_but_penstock() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.split() == ["penstock"]
