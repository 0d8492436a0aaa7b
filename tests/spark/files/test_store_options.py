"""Options of object stores: separated, refused before any work, and wrong names corrected."""

from __future__ import annotations

import ast
from pathlib import Path

import obstore
import pytest
from tests.spark.log_kit import make_data

from penstock.cli import options
from penstock.cli.app import run
from penstock.core.errors import InvalidRequest
from penstock.spark.files import objects
from penstock.spark.files.location import Location
from penstock.spark.files.objects import check_options
from penstock.spark.files.store_options import CONNECTION, option_names, split_options
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.source.options import ReadOptions

STORES = ("s3://bucket/x", "gs://bucket/x", "az://container/x")


def test_options_of_the_connection_are_told_from_those_of_the_store() -> None:
    config, connection = split_options(
        {"AWS_REGION": "eu-1", "aws_allow_http": "True", "timeout": "5s", "endpoint": "http://e", "ALLOW_HTTP": "false"}
    )
    assert config == {"aws_region": "eu-1", "endpoint": "http://e"}
    assert connection == {"allow_http": False, "timeout": "5s"}
    with pytest.raises(InvalidRequest, match=r"storage\.allow_http='maybe': true or false"):
        split_options({"allow_http": "maybe"})


@pytest.mark.parametrize("url", STORES)
def test_every_name_that_may_be_suggested_is_one_that_the_store_takes(url: str) -> None:
    """The store may well refuse the value."""
    refusals = []
    for name in option_names(url):
        try:
            check_options(url, {name: "true"})
        except InvalidRequest as error:
            refusals.append(error.message)
    assert [said for said in refusals if "no such option" in said] == []


def test_the_connection_has_all_options_that_the_client_has() -> None:
    """A missing option would be passed to the store, whose client panics over it. Headers are no text."""
    stub = Path(obstore.__file__).with_name("_store") / "_client.pyi"
    (config,) = [each for each in ast.parse(stub.read_text()).body if isinstance(each, ast.ClassDef)]
    there = {
        each.target.id for each in config.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    assert there - {"default_headers"} == set(CONNECTION)


@pytest.mark.parametrize(
    ("url", "given", "meant"),
    [
        ("s3://bucket/x", "alow_http", "aws_allow_http"),
        ("s3://bucket/x", "AWS_ALLOW_HTPP", "aws_allow_http"),
        ("s3a://bucket/x", "aws_access_key", "aws_access_key_id"),
        ("s3://bucket/x", "secret_acces_key", "aws_secret_access_key"),
        ("gs://bucket/x", "google_service_acount", "google_service_account"),
        ("abfss://container/x", "acount_name", "azure_storage_account_name"),
    ],
)
def test_an_option_with_a_wrong_name_is_refused_with_the_right_one(url: str, given: str, meant: str) -> None:
    words = f"storage.{given.lower()}: the object store {url} has no such option: did you mean {meant}?"
    for refused in (
        lambda: Location.parse(path=url, storage_options={given: "true"}),
        lambda: Folder.parse(url, {given: "true"}),
        lambda: ReadOptions.of({"path": url, "subscribe": "orders", f"storage.{given}": "true"}, streaming=None),
    ):
        with pytest.raises(InvalidRequest) as caught:
            refused()
        assert caught.value.message == words


@pytest.mark.parametrize("name", ["allow_http", "aws_allow_http", "randomize_addresses"])
def test_options_of_the_connection_open_a_warehouse_as_they_open_a_log(name: str) -> None:
    """Passed to the store as its own, they would end the process with a panic."""
    Location.parse(path="s3://bucket/x", storage_options={name: "true"})
    Folder.parse("s3://bucket/x", {name: "true"})


def test_a_client_that_gives_up_is_an_error_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table the client gets an option of the connection as one of the store's: a real panic."""
    monkeypatch.setattr(objects, "split_options", lambda options: (dict(options), {}))
    with pytest.raises(InvalidRequest, match="s3://bucket/x cannot be opened: Expected config prefix"):
        check_options("s3://bucket/x", {"allow_http": "true"})


@pytest.mark.parametrize(
    "command",
    [
        ("audit", "--data", "s3://bucket/x", "--data-option", "alow_http=true"),
        ("audit", "--data", "{data}", "--against", "s3://bucket/x", "--storage-option", "alow_http=true"),
        ("stats", "--data", "s3://bucket/x", "--data-option", "alow_http=true"),
        ("archive", "--once", "--data", "s3://bucket/x", "--data-option", "alow_http=true"),
        (
            "replay",
            "orders",
            "-t",
            "again",
            "--into",
            "{data}-2",
            "--data",
            "s3://bucket/x",
            "--data-option",
            "alow_http=true",
        ),
        (
            "replay",
            "orders",
            "-t",
            "again",
            "--into",
            "{data}-2",
            "--archive",
            "s3://bucket/x",
            "--storage-option",
            "alow_http=true",
        ),
    ],
)
def test_commands_refuse_it_before_they_start_spark(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options.SparkOptions, "session", lambda *_, **__: pytest.fail("Spark was started"))
    data = make_data(tmp_path / "data")
    assert run([word.format(data=data) for word in command]) == 2
    assert "did you mean aws_allow_http?" in capsys.readouterr().err
