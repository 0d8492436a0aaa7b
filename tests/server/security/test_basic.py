"""Keys as user and password (HTTP Basic), as clients of schema registries send them."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from dataclasses import dataclass

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from schema_registry.client import SchemaRegistryClient as OtherRegistryClient
from schema_registry.client.schema import AvroSchema
from tests.server.http_kit import Answer
from tests.server.kit import WsClient, eventually
from tests.server.security.conftest import Guarded
from tests.server.security.token_kit import hs256

RECORD = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


@dataclass(frozen=True)
class Key:
    name: str
    text: str

    @property
    def id(self) -> str:
        return self.text.split("_")[1]


def pair(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.fixture(scope="module")
def key(guarded: Guarded) -> Key:
    """Create a key, as `penstock key create` prints it."""
    command = [sys.executable, "-m", "penstock", "key", "create", "registry", "--role", "admin"]
    made = subprocess.run(
        [*command, "--data", str(guarded.running.data)], capture_output=True, text=True, check=True, timeout=60
    )
    return Key("registry", made.stdout.strip())


@pytest.fixture(scope="module")
def known(guarded: Guarded, key: Key) -> None:
    """The broker has seen the new key: another process has made it."""
    with guarded.http() as client:
        eventually(lambda: client.ask("GET", "/subjects", X_API_Key=key.text).status == 200, "the key is known")


def ask(guarded: Guarded, authorization: str) -> Answer:
    with guarded.http() as client:
        return client.ask("GET", "/subjects", Authorization=authorization)


pytestmark = pytest.mark.usefixtures("known")


def test_a_key_is_the_password_of_its_name_and_of_its_id(guarded: Guarded, key: Key) -> None:
    assert ask(guarded, pair(key.name, key.text)).status == 200
    assert ask(guarded, pair(key.id, key.text)).status == 200
    assert ask(guarded, pair(key.name, key.text).replace("Basic", "bAsIc")).status == 200


def test_a_key_under_another_name_is_refused_as_one_that_nobody_has(guarded: Guarded, key: Key) -> None:
    secret = key.text.rpartition("_")[0]
    wrong = [
        pair("somebody", key.text),
        pair("", key.text),
        pair(key.name, f"{secret}_{'a' * 52}"),
        pair(key.name, f"psk_{'a' * 13}_{'b' * 52}"),
    ]
    answers = [ask(guarded, each) for each in wrong]
    assert [answer.error for answer in answers] == [401] * 4
    assert {answer.json["message"] for answer in answers} == {"this key is not known here"}


@pytest.mark.parametrize(
    "shown",
    [
        "Basic",
        "Basic ?",
        "Basic é",
        pair("a", ""),
        pair("registry", "secret"),
        pair("ann", hs256()),
        f"Basic {b64encode(b'no colon').decode()}",
        f"Basic {b64encode(bytes([255, 254])).decode()}",
        "Digest x",
    ],
)
def test_what_is_no_name_and_key_is_refused(guarded: Guarded, shown: str) -> None:
    answer = ask(guarded, shown)
    assert answer.error == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="penstock", Basic realm="penstock", charset="UTF-8"'


def test_who_shows_nothing_is_told_both_ways(guarded: Guarded) -> None:
    with guarded.http() as client:
        for path in ("/subjects", "/v1/topics", "/metrics"):
            answer = client.ask("GET", path)
            assert answer.status == 401
            assert "Bearer " in answer.headers["www-authenticate"]
            assert "Basic " in answer.headers["www-authenticate"]


def test_it_opens_all_that_a_bearer_opens(guarded: Guarded, key: Key) -> None:
    shown = pair(key.name, key.text)
    with guarded.http() as client:
        for path in ("/v1/topics", "/metrics", "/v1/keys"):
            assert client.ask("GET", path, Authorization=shown).status == 200
        posted = client.ask("POST", "/api/events?topic=orders&type=t", b"x", Authorization=shown)
        assert posted.status == 200
    with WsClient(guarded.running.ready["ws_port"], headers={"Authorization": shown}) as opened:
        opened.subscribe("orders")


def test_the_client_of_confluent_registers_and_reads(guarded: Guarded, key: Key) -> None:
    url = f"http://localhost:{guarded.running.ready['http_port']}"
    with SchemaRegistryClient({"url": url, "basic.auth.user.info": f"{key.name}:{key.text}"}) as client:
        made = client.register_schema("basic-value", Schema(RECORD, "AVRO"))
        assert client.get_latest_version("basic-value").schema_id == made
    with (
        SchemaRegistryClient({"url": url, "basic.auth.user.info": f"nobody:{key.text}"}) as stranger,
        pytest.raises(SchemaRegistryError) as refused,
    ):
        stranger.get_subjects()
    assert refused.value.http_status_code == 401


def test_the_other_python_client_registers_and_reads(guarded: Guarded, key: Key) -> None:
    url = f"http://{key.name}:{key.text}@localhost:{guarded.running.ready['http_port']}"
    client = OtherRegistryClient(url)
    made = client.register("basic-other", AvroSchema(RECORD))
    found = client.get_schema("basic-other")
    assert found is not None
    assert found.schema_id == made
