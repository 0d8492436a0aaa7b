"""What is shipped to run and watch a broker fits the broker: every metric, command, flag and variable exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.deploy.promql import Wrong, parse
from tests.docs.test_docs import COMMANDS, section

from penstock.record.kernels.kernel_cache import ENVIRONMENT
from penstock.server.operations.metrics import FAMILIES, MetricKind
from penstock.server.settings import SETTINGS, Settings

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCS: Final = ROOT / "docs"
PROMETHEUS: Final = frozenset({"job", "instance", "le"})
"""Labels that Prometheus adds, and that histograms have."""


def known() -> dict[str, set[str]]:
    """Every series that a broker has, with its labels; and the one that Prometheus adds."""
    found: dict[str, set[str]] = {"up": set()}
    for family, _ in FAMILIES:
        suffixes = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
        found |= {family.name + suffix: set(family.labels) for suffix in suffixes}
    return found


KNOWN: Final = known()
RULES: Final = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
BOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana.json").read_text())
QUERIES: Final = [
    (f"{panel['title']}: {target['legendFormat']}", target["expr"])
    for panel in BOARD["panels"]
    for target in panel.get("targets", ())
]


def check(expression: str) -> set[str]:
    """Raises unless it is understood and asks only for what there is; the labels it has."""
    parsed = parse(expression.replace("$instance", "x"))
    labels = set().union(*(KNOWN[name] for name in parsed.metrics))
    for name, asked in parsed.metrics.items():
        assert asked <= KNOWN[name] | PROMETHEUS, name
    assert parsed.grouped <= labels | PROMETHEUS
    assert parsed.metrics
    return labels | PROMETHEUS


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_a_rule_asks_for_what_there_is_and_says_what_is_wrong(rule: dict[str, Any]) -> None:
    labels = check(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[0-9]+[mh]", rule.get("for", "1m"))
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert named <= labels


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_is_documented_with_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    (row,) = [line for line in section(DOCS / "operations.md", "Alerts").splitlines() if f"`{rule['alert']}`" in line]
    _, meaning, todo = row.strip("|").split(" | ")
    assert len(meaning) > 20
    assert len(todo) > 20


def test_alerts_that_are_documented_exist() -> None:
    told = re.findall(r"^\| `(Penstock\w+)`", (DOCS / "operations.md").read_text(), flags=re.MULTILINE)
    assert told == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize(("name", "expression"), QUERIES, ids=[name for name, _ in QUERIES])
def test_a_panel_asks_for_what_there_is(name: str, expression: str) -> None:
    labels = check(expression)
    legend = name.rpartition(": ")[2]
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels


def test_the_dashboard_has_a_source_an_instance_and_panels_that_do_not_overlap() -> None:
    assert [each["name"] for each in BOARD["templating"]["list"]] == ["source", "instance"]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids)) > 20
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_the_scrape_configuration_names_the_port_of_the_broker_and_the_rules_that_are_there() -> None:
    found = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (job,) = found["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{Settings().http_port}"]
    assert job["job_name"] == "penstock"
    assert all((DEPLOY / name).exists() for name in found["rule_files"])


@pytest.mark.parametrize(
    "wrong",
    [
        "penstock_logs >",
        "rate(penstock_logs)",
        "sum by (x penstock_logs)",
        "penstock_logs[5m]",
        "penstock_logs{a=b}",
        "histogram_quantile(penstock_logs, 0.9)",
        "penstock_logs penstock_logs",
        "(penstock_logs",
        "penstock_logs # 1",
    ],
)
def test_an_expression_that_prometheus_would_refuse_is_refused_here(wrong: str) -> None:
    with pytest.raises(Wrong):
        parse(wrong)


# the unit and the container


VARIABLES: Final = {setting.variable for setting in SETTINGS} | {ENVIRONMENT, "PENSTOCK_CONFIG"}


def understood(words: list[str]) -> None:
    """A command line of ours."""
    assert words[0].endswith("/bin/penstock")
    name = f"penstock {words[1]}"
    COMMANDS[name].make_context(name, words[2:])


def unit() -> Iterator[tuple[str, str, str]]:
    section_name = ""
    for line in (DEPLOY / "penstock.service").read_text().splitlines():
        if line.startswith("["):
            section_name = line.strip("[]")
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals
            yield section_name, name, value


def test_the_unit_is_one_that_systemd_reads_and_names_nothing_twice() -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "penstock.service")
    assert parser.sections() == ["Unit", "Service", "Install"]
    hardened = (
        "NoNewPrivileges",
        "ProtectSystem",
        "PrivateTmp",
        "ProtectHome",
        "SystemCallFilter",
        "RestrictAddressFamilies",
    )
    assert all(name in parser["Service"] for name in hardened)


def test_the_unit_runs_commands_with_options_that_exist() -> None:
    commands = [value for _, name, value in unit() if name.startswith("ExecStart")]
    assert len(commands) == 2
    for value in commands:
        understood(shlex.split(value))
    for _, name, value in unit():
        if name == "Environment":
            assert value.partition("=")[0] in VARIABLES


def test_the_unit_leaves_time_to_stop_and_as_many_files_as_connections() -> None:
    found = {name: value for _, name, value in unit()}
    assert int(found["TimeoutStopSec"]) * 1000 > 2 * Settings().limits.drain_ms
    assert int(found["LimitNOFILE"]) > Settings().limits.connections_max


def test_the_unit_leaves_time_to_compile_the_kernels() -> None:
    found = {name: value for _, name, value in unit()}
    assert found["TimeoutStartSec"] == "10min"


def test_the_build_of_the_container_gets_what_it_needs_and_nothing_else() -> None:
    """All that the project names, and neither its history nor what lies about."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    taken = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert taken == {"src", "pyproject.toml", "requirements.lock", "LICENSE", project["readme"]}
    assert all((ROOT / name).exists() for name in taken)


def test_the_container_runs_commands_and_sets_variables_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    told = set(re.findall(r"\bPENSTOCK_[A-Z_]+", text))
    assert told
    assert told <= VARIABLES
    lists = [json.loads(found) for found in re.findall(r"^(?:RUN|ENTRYPOINT|CMD) (\[.*\])$", text, flags=re.MULTILINE)]
    warm, entry, command = lists
    understood(warm)
    understood([*entry, *command])


def test_the_container_exposes_the_ports_that_are_listened_on() -> None:
    (ports,) = re.findall(r"^EXPOSE (.*)$", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    settings = Settings()
    assert [int(port) for port in ports.split()] == [settings.tcp_port, settings.ws_port, settings.http_port]
