"""A broker's files over HTTP: a real broker read while it writes, and the errors of servers that do not answer well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import Serving
from tests.server.registry.kit import LocalBackend
from tests.server.tls_kit import Authority
from tests.spark.log_kit import ORDERS, SMALL, everything, make_data, records

import penstock
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, ServiceUnavailable, VersionNotSupported
from penstock.core.names import TopicName
from penstock.schema.registry.registry import Registry
from penstock.server.api.app import Api
from penstock.server.files.log_files import LogFiles
from penstock.server.registry.cache import SchemaAnswerCache
from penstock.server.routes import ROUTE_TABLE
from penstock.spark.files import web
from penstock.spark.files.http import HttpDisk
from penstock.spark.files.location import Location
from penstock.spark.files.web import HttpClient
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import ManualClock, RunningBroker

SMALL_SEGMENTS = {"PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": "16KiB", "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": "256KiB"}
SMALL_SEGMENTS |= {"PENSTOCK_STORAGE_BLOCK_BYTES_MAX": "256KiB", "PENSTOCK_STORAGE_PAYLOAD_BYTES_MAX": "8KiB"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


@pytest.fixture(scope="module")
def broker(environment: dict[str, str]) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=environment | SMALL_SEGMENTS) as running:
        yield running


def published(broker: RunningBroker, topic: str, payloads: range) -> None:
    with penstock.connect(broker.url) as client:
        client.publish_many(topic, [b"message %06d" % number * 10 for number in payloads])


# a broker


def test_it_reads_what_a_plain_reader_reads_while_the_broker_owns_it(broker: RunningBroker) -> None:
    published(broker, "orders", range(4000))
    published(broker, "/shop/parts.sold", range(10))
    far = Location.parse(url=broker.http_url).open()
    near = DataReader(broker.data)
    assert len(near.topic(ORDERS).partition(0).view.segments) > 2
    assert everything(far) == everything(near)


def test_a_reader_follows_what_is_published(broker: RunningBroker) -> None:
    published(broker, "followed", range(10))
    log = Location.parse(url=broker.http_url).open().topic(TopicName.parse("followed")).partition(0)
    writer = threading.Thread(target=published, args=(broker, "followed", range(10, 600)))
    writer.start()
    found: list[int] = []
    while len(found) < 600:
        log.refresh()
        if len(found) < log.view.next_offset:
            chunk = log.read(len(found))
            assert not chunk.damages
            found += [int(record.offset) for record in chunk]
    writer.join()
    assert found == list(range(600))


def test_what_retention_drops_meanwhile_is_out_of_range(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    with Catalog.open(tmp_path / "registry.db", clock=ManualClock()) as catalog:
        app = Api(LocalBackend(Registry(catalog.schemas)), ROUTE_TABLE, SchemaAnswerCache(), LogFiles(root))
        with Serving(app) as serving:
            log = Location.parse(url=serving.url).open().topic(ORDERS).partition(0)
            with Store.open(root, limits=SMALL) as store:
                store.truncate_before(ORDERS, 250)
            with pytest.raises(OffsetOutOfRange):
                log.read(0)
            assert [record.offset for record in records(log)] == list(range(250, 300))


def test_a_broker_without_topics_has_none(environment: dict[str, str]) -> None:
    with RunningBroker("--http-port", "0", environment=environment) as running:
        location = Location.parse(url=running.http_url)
        assert location.open().topics() == []
        data = location.open()
        published(running, "orders", range(3))
        assert [str(topic.name) for topic in data.topics()] == ["/default/orders"]
        running.kill()
        running.start()  # on another port, and there it goes on
        assert Location.parse(url=running.http_url).open().topic(ORDERS).partition(0).view.next_offset == 3


def test_a_broker_that_does_not_give_its_logs_away_says_so(environment: dict[str, str]) -> None:
    with (
        RunningBroker("--http-port", "0", environment=environment | {"PENSTOCK_HTTP_LOGS": "false"}) as running,
        pytest.raises(InvalidRequest, match=r"has no logs to read: .*http_logs off"),
    ):
        Location.parse(url=running.http_url).open()


def test_a_broker_with_tls_is_read_with_certificates(tmp_path: Path, environment: dict[str, str]) -> None:
    authority = Authority.make(tmp_path, "authority")
    its, mine = authority.issue("broker"), authority.issue("client")
    given = ("--tls-cert", its.cert, "--tls-key", its.key, "--tls-ca", authority.pair.cert)
    with RunningBroker("--http-port", "0", *map(str, given), environment=environment) as running:
        url = running.http_url.replace("http://", "https://")
        options = {"tls_ca": authority.pair.cert, "tls_cert": mine.cert, "tls_key": mine.key}
        known = {name: str(file) for name, file in options.items()}
        assert Location.parse(url=url, storage_options=known).open().topics() == []
        with pytest.raises(InvalidRequest, match=r"storage\.tls_ca='nowhere'"):
            Location.parse(url=url, storage_options={"tls_ca": "nowhere"}).open()


# servers that do not answer, or are no broker


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_PAUSE_SECONDS", 0.001)


def test_where_nobody_listens_that_is_said(hasty: None) -> None:
    with pytest.raises(ServiceUnavailable, match=r"the broker at http://127\.0\.0\.1:9 does not answer .* running"):
        Location.parse(url="http://127.0.0.1:9").open()


Answering = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def fake_server(*answers: Answering) -> Iterator[tuple[str, list[str]]]:
    """Yield a server that gives these answers, the last one for ever; and the requests that it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            answers[min(len(asked), len(answers)) - 1](self)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(status: int, body: bytes, **headers: str) -> Answering:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hanging_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def test_somebody_else_is_recognised_by_what_he_says(hasty: None) -> None:
    for body in (b"<html>hello</html>", b'{"something": "else"}', b"[]"):
        with (
            fake_server(answering(200, body)) as (url, _),
            pytest.raises(InvalidRequest, match="something else than a Penst"),
        ):
            Location.parse(url=url).open()
    with (
        fake_server(answering(404, b"")) as (url, _),
        pytest.raises(InvalidRequest, match="no Penstock broker, one of an old"),
    ):
        Location.parse(url=url).open()


def test_a_refusal_is_told(hasty: None) -> None:
    body = b'{"error_code": 403, "message": "pages may not ask"}'
    with (
        fake_server(answering(403, body)) as (url, _),
        pytest.raises(InvalidRequest, match="answers 403: pages may not ask"),
    ):
        Location.parse(url=url).open()


def test_a_newer_format_is_refused(hasty: None) -> None:
    with (
        fake_server(answering(200, b'{"format": 2, "namespaces": []}')) as (url, _),
        pytest.raises(VersionNotSupported),
    ):
        Location.parse(url=url).open()


def test_who_is_busy_is_asked_again_and_not_for_ever(hasty: None) -> None:
    good = answering(200, b'{"format": 1, "namespaces": []}')
    with fake_server(answering(503, b"{}"), hanging_up, good) as (url, asked):
        assert Location.parse(url=url).open().topics() == []
        assert len(asked) >= 3
    with fake_server(answering(503, b'{"message": "too much"}')) as (url, asked):
        with pytest.raises(ServiceUnavailable, match="it answers 503: too much"):
            HttpClient(url).get("/")
        assert len(asked) == 5


def test_a_range_that_is_not_the_one_asked_for_is_not_believed(hasty: None) -> None:
    listing = answering(200, b'{"files": [{"name": "start", "bytes": 90, "tag": "t"}]}')
    path = Path("topics/default/orders/start")
    wrong = answering(206, bytes(10), content_range="bytes 50-59/90")
    for answer, error in ((wrong, ServiceUnavailable), (answering(200, bytes(90)), InvalidRequest)):
        with fake_server(listing, answer) as (url, _):
            file = HttpDisk(url).open(path)
            with pytest.raises(error):
                file.read_into(bytearray(10), 0)
    with fake_server(listing, answering(416, b"{}")) as (url, _):
        assert HttpDisk(url).open(path).read_into(bytearray(10), 0) == 0
    with fake_server(listing, answering(404, b"{}")) as (url, _), pytest.raises(FileNotFoundError):
        HttpDisk(url).open(path).read_into(bytearray(10), 0)


def test_one_connection_serves_many_questions_and_a_closed_one_is_made_again() -> None:
    ports = []

    def noted(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        answering(200, b"{}")(handler)

    with fake_server(noted) as (url, _):
        far = HttpClient(url)
        for _ in range(5):
            assert far.get_json("/") == {}
        assert len(set(ports)) == 1
        far.close()
        assert far.get_json("/") == {}
        assert len(set(ports)) == 2
        far.close()


def test_who_is_asked_with_a_password_is_told_it_and_nobody_else_is() -> None:
    heard = []

    def noted(handler: BaseHTTPRequestHandler) -> None:
        heard.append(handler.headers["authorization"])
        answering(500, b"{}")(handler)

    with fake_server(noted) as (url, _):
        far = HttpClient(url.replace("http://", "http://me:se%2Fcret@"), what="the registry")
        with pytest.raises(InvalidRequest) as caught:
            far.get_json("/")
        far.close()
    assert heard == ["Basic bWU6c2UvY3JldA=="]
    assert "cret" not in caught.value.message
