"""Logs' files over HTTP: what is listed, what is sent, and that nothing else of a data directory can be named."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.http_kit import Answer, Client, Serving
from tests.server.registry.kit import LocalBackend

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.schema.registry.registry import Registry
from penstock.server.api.app import Api
from penstock.server.api.errors import HttpError
from penstock.server.files.log_files import PIECE_BYTES, FileRangeResponse, LogFiles, requested_range
from penstock.server.registry.cache import SchemaAnswerCache
from penstock.server.routes import ROUTE_TABLE
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.store import Store
from penstock.testing import ManualClock

ORDERS = TopicName.parse("orders")
SOLD = TopicName.parse("/shop/parts.sold")
SMALL = Limits(payload_bytes_max=4096, block_bytes_max=8192, segment_bytes_first=4096, segment_bytes_max=16384)
LOG = "/v1/logs/default/orders"
SEGMENT = f"{0:020d}.seg"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files") / "data"
    with Store.open(root, create=True, limits=SMALL) as store:
        store.create_topic(ORDERS)
        store.create_topic(SOLD, partitions=3)
        store.append(SOLD, Draft.of([Message(payload=b"first")]), partition=0)
        for number in range(200):
            store.append(ORDERS, Draft.of([Message(payload=b"%d" % number * 100)]))
        store.truncate_before(ORDERS, 97)
    log = root / "topics/default/orders"
    (log / "quarantine").mkdir()
    (log / "quarantine" / SEGMENT).write_bytes(b"bad")
    (log / "spare.seg").write_bytes(bytes(64))
    (log / "secret").write_text("a secret")
    (root / "topics/stray").write_text("a file")
    (root / "topics/default/lost+found").mkdir()
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[Client]:
    with Catalog.open(root.parent / "other.db", clock=ManualClock()) as catalog:
        app = Api(LocalBackend(Registry(catalog.schemas)), ROUTE_TABLE, SchemaAnswerCache(), LogFiles(root))
        with Serving(app) as serving, Client(serving.port) as made:
            yield made


def ask(client: Client, path: str, method: str = "GET", **headers: str) -> Answer:
    return client.ask(method, path, **headers)


# lists


def test_namespaces_logs_and_files_are_listed_as_they_lie(client: Client, root: Path) -> None:
    assert ask(client, "/v1/logs").json == {"format": 1, "namespaces": ["default", "shop"]}
    assert ask(client, "/v1/logs/shop").json == {"logs": [f"parts.sold-part-{number}" for number in range(3)]}
    assert ask(client, "/v1/logs/default").json == {"logs": ["orders"]}
    files = ask(client, LOG).json["files"]
    names = {path.name for path in (root / "topics/default/orders").iterdir()}
    assert {each["name"] for each in files} == names - {"quarantine", "spare.seg", "secret"}
    assert "start" in {each["name"] for each in files}
    for each in files:
        assert each["bytes"] == (root / "topics/default/orders" / each["name"]).stat().st_size


def test_the_tag_of_a_file_is_another_after_it_was_written_to(client: Client, root: Path) -> None:
    def tags() -> dict[str, str]:
        return {each["name"]: each["tag"] for each in ask(client, "/v1/logs/shop/parts.sold-part-0").json["files"]}

    before = tags()
    with Store.open(root, limits=SMALL) as store:
        store.append(SOLD, Draft.of([Message(payload=b"new")]), partition=0)
    after = tags()
    assert before.keys() == after.keys()
    assert before != after


# bytes


def test_a_whole_file_and_any_range_of_it_are_its_bytes(client: Client, root: Path) -> None:
    data = (root / "topics/default/orders/start").read_bytes()
    whole = ask(client, f"{LOG}/start")
    assert (whole.status, whole.body, whole.media) == (200, data, "application/octet-stream")
    assert whole.headers["accept-ranges"] == "bytes"
    for asked, start, stop in (("0-3", 0, 4), ("2-", 2, len(data)), ("-5", len(data) - 5, len(data)), ("9-9", 9, 10)):
        part = ask(client, f"{LOG}/start", Range=f"bytes={asked}")
        assert (part.status, part.body) == (206, data[start:stop])
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(data)}"
        assert part.headers["etag"] == whole.headers["etag"]


def test_a_range_beyond_the_end_ends_with_the_file_and_one_behind_it_is_none(client: Client, root: Path) -> None:
    size = (root / "topics/default/orders/start").stat().st_size
    assert len(ask(client, f"{LOG}/start", Range="bytes=5-99999").body) == size - 5
    refused = ask(client, f"{LOG}/start", Range=f"bytes={size}-")
    assert (refused.status, refused.error) == (416, 416)


def test_ranges_that_are_not_understood_are_the_whole_file(client: Client) -> None:
    for asked in ("bytes=1-2,4-5", "lines=1-2", "bytes=5-2", "nonsense", "bytes=-"):
        assert ask(client, f"{LOG}/start", Range=asked).status == 200


def test_a_file_of_many_pieces_comes_whole_and_in_order(client: Client, root: Path) -> None:
    path = root / "topics/shop/parts.sold-part-1" / f"{9:020d}.seg"
    data = b"".join(b"%08d" % number for number in range((2 * PIECE_BYTES + 4000) // 8))
    path.write_bytes(data)
    try:
        assert ask(client, f"/v1/logs/shop/parts.sold-part-1/{path.name}").body == data
        part = ask(client, f"/v1/logs/shop/parts.sold-part-1/{path.name}", Range=f"bytes=3-{PIECE_BYTES + 9}")
        assert part.body == data[3 : PIECE_BYTES + 10]
    finally:
        path.unlink()


def test_head_says_how_large_it_is_and_sends_nothing(client: Client, root: Path) -> None:
    found = ask(client, f"{LOG}/start", "HEAD")
    assert (found.status, found.body) == (200, b"")
    assert int(found.headers["content-length"]) == (root / "topics/default/orders/start").stat().st_size


def test_an_empty_file_is_empty(client: Client, root: Path) -> None:
    path = root / "topics/shop/parts.sold-part-1" / f"{8:020d}.seg"
    path.touch()
    found = ask(client, f"/v1/logs/shop/parts.sold-part-1/{path.name}")
    assert (found.status, found.body) == (200, b"")
    path.unlink()


# what is not to be had


@pytest.mark.parametrize(
    "path",
    [
        "/v1/logs/default/orders/secret",
        "/v1/logs/default/orders/quarantine",
        f"/v1/logs/default/orders/quarantine%2F{SEGMENT}",
        f"/v1/logs/default/orders/{quote('../orders/start', safe='')}",
        "/v1/logs/default/orders/spare.seg",
        "/v1/logs/default/orders/..",
        f"/v1/logs/default/orders/{quote('../../../store.json', safe='')}",
        "/v1/logs/default/orders/%2Fetc%2Fpasswd",
        "/v1/logs/default/..%2F../store.json",
        "/v1/logs/default/../start",
        "/v1/logs/..%2F../topics/start",
        "/v1/logs/%2E%2E/topics/start",
        "/v1/logs/default/Orders/start",
        "/v1/logs/DEFAULT/orders/start",
        "/v1/logs/default/orders%00/start",
        "/v1/logs/shop/parts.sold-part-01/start",
        "/v1/logs/stray",
        "/v1/logs/nobody",
        "/v1/logs/default/nothing",
        "/v1/logs/default/lost+found",
        f"/v1/logs/default/orders/{10**19:020d}.seg",
        f"/v1/logs/default/orders/{SEGMENT}.tmp",
    ],
)
def test_nothing_else_can_be_named(client: Client, path: str) -> None:
    found = ask(client, path)
    assert (found.status, found.error) == (404, 404), found.body


def test_a_file_that_retention_has_removed_is_not_found(client: Client, root: Path) -> None:
    assert ask(client, f"{LOG}/{SEGMENT}").status == 404


def test_nothing_can_be_written(client: Client) -> None:
    for method in ("PUT", "POST", "DELETE"):
        assert ask(client, f"{LOG}/start", method).status == 405


def test_where_it_is_switched_off_nothing_is_to_be_had(root: Path) -> None:
    with Catalog.open(root.parent / "off.db", clock=ManualClock()) as catalog:
        app = Api(LocalBackend(Registry(catalog.schemas)), ROUTE_TABLE, SchemaAnswerCache())
        with Serving(app) as serving, Client(serving.port) as client:
            found = ask(client, "/v1/logs")
            assert found.status == 404
            assert "http_logs is off" in found.json["error"]["message"]


# ranges


@given(st.integers(0, 40), st.integers(0, 50), st.one_of(st.none(), st.integers(0, 50)))
def test_a_range_is_what_lies_within_the_file(size: int, first: int, last: int | None) -> None:
    asked = f"bytes={first}-{'' if last is None else last}"
    data = bytes(range(size))
    wanted = data[first:] if last is None else data[first : last + 1]
    if last is not None and last < first:
        assert requested_range(asked, size) is None
    elif not wanted:
        with pytest.raises(HttpError) as caught:
            requested_range(asked, size)
        assert caught.value.status == 416
    else:
        start, stop = requested_range(asked, size) or (0, 0)
        assert data[start:stop] == wanted


def test_a_client_that_may_no_longer_read_gets_no_further_piece(root: Path) -> None:
    """Revoke the permission in the middle: the response is cut, and the client can tell that it is incomplete."""
    path = root / f"topics/default/orders/{'9' * 19}0.seg"
    path.write_bytes(bytes(3 * PIECE_BYTES))
    sent: list[int] = []

    async def send(message: Any) -> None:
        sent.append(len(message.get("body", b"")))

    async def nothing() -> dict[str, Any]:
        return {}

    async def download() -> None:
        logs = LogFiles(root)
        await FileRangeResponse(logs, os.open(path, os.O_RDONLY), None, lambda: len(sent) < 3)(
            {"method": "GET"}, nothing, send
        )

    with pytest.raises(ConnectionError, match="may no longer be read"):
        asyncio.run(download())
    path.unlink()
    assert sent == [0, PIECE_BYTES, PIECE_BYTES]
