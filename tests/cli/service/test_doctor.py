"""`penstock doctor`: it checks what a broker would use, and a missing extra is no fault."""

from __future__ import annotations

import re
import socket
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest
from tests.cli.kit import Run
from tests.cli.test_app import blocked, python
from tests.ports import free_ports

from penstock.doctor import EXTRAS

ROOT: Final = Path(__file__).parents[3]


def findings(here: Run, *arguments: str, code: int = 0) -> dict[str, tuple[str, str]]:
    done = here("doctor", "--json", *arguments)
    assert done.code == code, done.out
    return {row["what"]: (row["state"], row["text"]) for row in done.rows}


def test_ports_are_those_of_the_file_the_environment_and_the_options(
    here: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = free_ports(3)
    (home / "a.toml").write_text(f"[server]\ntcp_port = {first}\nws_port = {first + 1}\nhttp_port = 'off'\n")
    monkeypatch.setenv("PENSTOCK_WS_PORT", str(second))
    found = findings(here, "--config", "a.toml")
    assert found["tcp port"] == ("ok", f"{first} is free")
    assert found["websocket port"] == ("ok", f"{second} is free")
    assert found["http port"] == ("ok", "off")
    assert findings(here, "--ws-port", str(third))["websocket port"] == ("ok", f"{third} is free")
    assert findings(here, "--tcp-port", "0")["tcp port"] == ("ok", "any that is free")


def test_a_port_that_somebody_has_is_a_note(here: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        state, text = findings(here, "--tcp-port", str(port))["tcp port"]
    assert (state, text.startswith(f"{port}: ")) == ("note", True)


def test_an_address_of_another_machine_is_a_fault(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_ALLOW_PLAINTEXT", "PENSTOCK_ALLOW_ANONYMOUS"):
        monkeypatch.setenv(name, "true")
    state, text = findings(here, "--host", "192.0.2.1", code=1)["tcp port"]
    assert (state, "192.0.2.1" in text) == ("missing", True)


def test_settings_that_no_broker_would_take_are_a_fault(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TCP_PROT", "1")
    found = findings(here, code=1)
    assert found["settings"][0] == "missing"
    assert "did you mean PENSTOCK_TCP_PORT?" in found["settings"][1]
    assert "tcp port" not in found


def test_the_directory_is_that_of_the_settings(here: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "kept").mkdir()
    monkeypatch.setenv("PENSTOCK_DATA", str(home / "kept" / "data"))
    assert findings(here)["disk"][1].endswith(str(home / "kept"))
    assert findings(here, "--data", str(home / "other"))["disk"][1].endswith(str(home))


def test_an_extra_that_is_not_installed_is_a_note_with_how_to_get_it(environment: dict[str, str]) -> None:
    done = python(blocked(["numba", "pyspark", "sqlalchemy"], "doctor"), environment)
    assert done.returncode == 0, done.stderr
    for extra in ("stream", "server", "spark", "pipelines"):
        assert re.search(rf"\[{extra}\].*note.*not installed.*pip install 'penstock\[{extra}\]'", done.stdout)
    assert re.search(r"\[schema\].*ok", done.stdout)


def test_every_package_of_an_extra_is_looked_for() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = packages_distributions()

    def named(extra: str) -> set[str]:
        own, inner = set(), re.compile(r"penstock\[([a-z,]+)\]")
        for line in declared[extra]:
            if found := inner.match(line):
                own |= {each for name in found[1].split(",") for each in named(name)}
            else:
                own.add(re.split(r"[\[<>=;]", line)[0])
        return own

    for extra in EXTRAS:
        looked_for = {
            dist.lower().replace("_", "-") for module in extra.modules for dist in brought[module.partition(".")[0]]
        }
        assert named(extra.name) <= looked_for
