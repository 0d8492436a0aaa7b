"""The page about schemas, and what the README says of them: every line of shell and Python runs as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.kit import child_environment
from tests.docs.test_docs import SECONDS
from tests.ports import free_ports

from penstock.testing import RunningBroker

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "schemas.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def shell(script: str, place: Path, environment: dict[str, str]) -> str:
    """What a script says; no line of it fails, unless it tells what to do then."""
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": SECONDS}
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}
    done = subprocess.run(["sh", "-c", f"set -e\n{script}"], cwd=place, env=environment | path, **output)
    said = str(done.stdout)
    assert done.returncode == 0, said
    return said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_commands_of_the_page_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    serve, *steps = blocks(PAGE, "sh")
    assert serve == "penstock serve\n"
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", environment=environment) as broker:
        script = "\n".join(steps).replace("http://127.0.0.1:7452", broker.http_url)
        said = shell(script, tmp_path, environment | {"PENSTOCK_URL": broker.url})
        assert "Traceback" not in broker.log
    (explained,) = blocks(PAGE, "text")
    for words in (
        "orders-value: version 1, id 1 (AVRO)\n",
        (tmp_path / "order.avsc").read_text(),
        explained,
        "not like this\n",
        "orders-value: version 2, id 2 (AVRO)\n",
        "version 2 can read what version 1 wrote\nversion 1 cannot read what version 2 wrote:\n",
        "compatibility       FULL_TRANSITIVE\n",
        "policy               enforce",
        "penstock: SCHEMA_REJECTED: ",
        "\nrefused\n",
        '"schema.refused.total":1',
        '["orders-value","payments-value"]',
        '"policy":"warn"',
        "orders-value: back: version 1\n",
        "0 records imported, ",
    ):
        assert words in said


def test_the_program_of_the_page_runs(
    keeper: RunningBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", keeper.url)
    (block,) = blocks(PAGE, "python")
    exec(compile(block, "schemas.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "Refund(order=7, cents=1999) 1\n"


@pytest.mark.slow
def test_the_schemas_of_the_readme_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    section = re.split(r"^## ", (ROOT / "README.md").read_text().split("## Schemas\n", 1)[1], flags=re.MULTILINE)[0]
    (script,) = blocks(section, "sh")
    (port,) = free_ports(1)
    ports = {"PENSTOCK_TCP_PORT": str(port), "PENSTOCK_WS_PORT": "0", "PENSTOCK_URL": f"tcp://127.0.0.1:{port}"}
    said = shell(script, tmp_path, child_environment(tmp_path_factory) | ports)
    for words in (
        "payments-value: version 1, id 1 (JSON)\n",
        "1 message published to payments\npenstock: SCHEMA_REJECTED: ",
        "\nrefused: it is no integer\n",
        "payments-value: not compatible (BACKWARD), ",
        "no consumer would be able to read both\n",
    ):
        assert words in said
