"""The page about the admin API: its commands run as they stand, and its tables are what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from tests.server.admin.kit import admin_of

from penstock.core.errors import Code
from penstock.server.admin.routes import ROUTES
from penstock.server.api.errors import STATUSES

PAGE: Final = (Path(__file__).parents[3] / "docs" / "admin.md").read_text()


def answers(text: str) -> list[Any]:
    """JSON values one behind the other, and what is none as it is."""
    found, decoder = [], json.JSONDecoder()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            value, end = text[: text.find("{") if "{" in text else None], text.find("{") if "{" in text else len(text)
        found.append(value)
        text = text[end:]
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_commands_of_the_page_run_as_they_stand() -> None:
    walk, looking, letters = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    with admin_of() as admin:
        said = [_run(block, admin.port) for block in (walk, looking, letters)]
    created, subscribed, first, second, browsed, topic, billing, sought, altered, subscriptions, _ = said[0]
    assert (created["topic"], subscribed["created"], topic["messages"]) == ("/shop/orders", True, 2)
    assert {first["offset"], second["offset"]} == {0}
    assert [each["payload"] for each in browsed["messages"]] == ["paid"]
    assert (billing["lag"], sum(sought["positions"].values()), altered["settings"]["redeliveries"]) == (2, 2, 3)
    assert len(subscriptions["subscriptions"]) == 1
    *_, paged, payload, cut = said[1]
    assert [each["payload"] for each in paged["messages"]] == ["event 3", "event 4"]
    assert payload == "event 5"
    assert (cut["messages"][0]["payload"], cut["messages"][0]["payload_cut"]) == ("event", True)
    assert said[2][0] == {"dead_letters": []}
    assert [each["error"]["code"] for each in said[2][1:]] == ["TOPIC_NOT_SUPPORTED"] * 2


def _run(block: str, port: int) -> list[Any]:
    environment = {"API": f"http://localhost:{port}", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-ec", block], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return answers(done.stdout)


def test_every_row_has_its_place_on_the_page() -> None:
    """Find each route by the last literal segment of its path."""
    for row in ROUTES:
        word = [part for part in row.path.split("/") if part and not part.startswith("{")][-1]
        assert f"/{word}" in PAGE, row.path


def test_every_parameter_of_browsing_is_on_the_page() -> None:
    (row,) = [each for each in ROUTES if each.method == "GET" and each.path == "/v1/topics/{topic}/messages"]
    section = PAGE.split("## Looking through messages")[1].split("\n## ")[0]
    assert all(f"`{each.name}`" in section for each in row.query)


def test_the_statuses_of_the_page_are_those_of_the_codes() -> None:
    lines = [line for line in PAGE.split("## Errors")[1].splitlines() if re.match(r"\| [0-9]", line)]
    for code in Code:
        if code in (Code.INVALID_REQUEST_ID, Code.VERSION_NOT_SUPPORTED, Code.NO_ROUTE_FOUND):
            continue  # only on the wire
        (line,) = [line for line in lines if f"`{code.value}`" in line]
        assert str(int(STATUSES[code])) in line.split("|")[1], code
