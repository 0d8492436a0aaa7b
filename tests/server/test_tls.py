"""TLS and client certificates on both transports, and new certificates while the broker runs."""

from __future__ import annotations

import shutil
import signal
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.server.kit import BrokerProcess, Ended, Link, Start, TcpClient, WsClient, eventually
from tests.server.tls_kit import Authority, Pair, replace


@dataclass(frozen=True)
class Certificates:
    ours: Authority
    foreign: Authority
    server: Pair
    client: Pair
    foreign_client: Pair


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    ours, foreign = Authority.make(folder, "ours"), Authority.make(folder, "foreign")
    return Certificates(ours, foreign, ours.issue("server"), ours.issue("client"), foreign.issue("client"))


@dataclass
class Secured:
    """A broker, and the files it watches."""

    broker: BrokerProcess
    cert: Path
    key: Path
    ca: Path

    def connect(self, transport: type[TcpClient | WsClient], tls: ssl.SSLContext | None) -> Link:
        port = self.broker.tcp_port if transport is TcpClient else self.broker.ws_port
        return transport(port, tls=tls)

    def refuses(self, transport: type[TcpClient | WsClient], tls: ssl.SSLContext) -> bool:
        try:
            self.connect(transport, tls).close()
        except (ssl.SSLError, Ended, ConnectionError):
            return True
        return False

    def serial(self, tls: ssl.SSLContext, transport: type[TcpClient | WsClient] = TcpClient) -> object:
        """Return the serial number of the certificate that new connections get."""
        with self.connect(transport, tls) as client:
            assert client.answers()
            assert isinstance(client.socket, ssl.SSLSocket)
            shown = client.socket.getpeercert()
            assert shown is not None
            return shown["serialNumber"]

    def reload(self, *new: tuple[Path, Path]) -> None:
        """Replace the files and send SIGHUP. The broker also looks by itself, so it may know the new files before."""
        before = self.broker.log().count("certificates reloaded")
        for file, source in new:
            replace(file, source)
        self.broker.signal(signal.SIGHUP)
        eventually(lambda: self.broker.log().count("certificates reloaded") > before, "the files are in use")

    def refuse_to_reload(self) -> None:
        before = self.broker.log().count("certificates not reloaded")
        self.broker.signal(signal.SIGHUP)
        eventually(lambda: self.broker.log().count("certificates not reloaded") > before, "the files were looked at")


@pytest.fixture
def secure(start: Start, certificates: Certificates, tmp_path: Path) -> Callable[..., Secured]:
    def call(*, clients: bool = False) -> Secured:
        found = Secured.__new__(Secured)
        found.cert, found.key, found.ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
        shutil.copyfile(certificates.server.cert, found.cert)
        shutil.copyfile(certificates.server.key, found.key)
        shutil.copyfile(certificates.ours.pair.cert, found.ca)
        flags: list[str | Path] = ["--tls-cert", found.cert, "--tls-key", found.key, "--log-level", "info"]
        if clients:
            flags += ["--tls-ca", found.ca]
        found.broker = start(*flags)
        return found

    return call


def _plain(secured: Secured, transport: type[TcpClient | WsClient]) -> Link:
    return transport(secured.broker.tcp_port if transport is TcpClient else secured.broker.ws_port, greet=False)


def test_both_transports_speak_tls_and_nothing_else(secure: Callable[..., Secured], certificates: Certificates) -> None:
    secured = secure()
    for transport in (TcpClient, WsClient):
        with secured.connect(transport, certificates.ours.client()) as client:
            assert client.answers()
            client.subscribe("tls.large")
            client.send("publish:tls.large:1.0.0", bytes(1 << 20))
            assert len(client.receive().payload) == 1 << 20
        with pytest.raises(ssl.SSLCertVerificationError):
            secured.connect(transport, certificates.foreign.client())
        with _plain(secured, transport) as client:
            client.raw(b"no hello of TLS\n" * 100)
            with pytest.raises(Ended):
                client.exactly(1 << 20)
        old = certificates.ours.client()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            secured.connect(transport, old)
    assert secured.broker.defects() == []


def test_clients_must_show_a_certificate_of_the_right_authority(
    secure: Callable[..., Secured], certificates: Certificates
) -> None:
    secured = secure(clients=True)
    for transport in (TcpClient, WsClient):
        with secured.connect(transport, certificates.ours.client(certificates.client)) as client:
            assert client.answers()
        for wrong in (None, certificates.foreign_client):
            assert secured.refuses(transport, certificates.ours.client(wrong))
    connected = secured.broker.log().count("] connected")
    assert connected == 2, "whoever showed no certificate has become a session"


def test_a_new_certificate_is_shown_after_sighup_and_those_connected_stay(
    secure: Callable[..., Secured], certificates: Certificates, stack: ExitStack
) -> None:
    secured, tls = secure(), certificates.ours.client()
    stayed = [stack.enter_context(secured.connect(transport, tls)) for transport in (TcpClient, WsClient)]
    before = secured.serial(tls)
    new = certificates.ours.issue("renewed")
    secured.reload((secured.key, new.key), (secured.cert, new.cert))
    after = {secured.serial(tls, transport) for transport in (TcpClient, WsClient)}
    assert len(after) == 1
    assert before not in after
    assert all(client.answers() for client in stayed)


@pytest.mark.slow
def test_a_new_certificate_is_found_without_being_told(
    secure: Callable[..., Secured], certificates: Certificates
) -> None:
    secured, tls = secure(), certificates.ours.client()
    before = secured.serial(tls)
    new = certificates.ours.issue("found")
    replace(secured.key, new.key)
    replace(secured.cert, new.cert)
    eventually(lambda: secured.serial(tls) != before, "the new certificate is shown")


def test_half_written_files_keep_the_old_certificate(
    secure: Callable[..., Secured], certificates: Certificates
) -> None:
    secured, tls = secure(), certificates.ours.client()
    before, old = secured.serial(tls), secured.cert.read_bytes()
    new = certificates.ours.issue("halved")
    for content in (b"", old[: len(old) // 2], b"garbage", new.cert.read_bytes()):  # the last without its key
        secured.cert.write_bytes(content)
        secured.refuse_to_reload()
        assert secured.serial(tls) == before
    secured.cert.unlink()
    secured.refuse_to_reload()
    assert secured.serial(tls, WsClient) == before
    secured.reload((secured.key, new.key), (secured.cert, new.cert))
    assert secured.serial(tls) != before


def test_an_authority_that_was_replaced_is_no_longer_trusted(
    secure: Callable[..., Secured], certificates: Certificates
) -> None:
    secured = secure(clients=True)
    with secured.connect(TcpClient, certificates.ours.client(certificates.client)) as client:
        assert client.answers()
    secured.reload((secured.ca, certificates.foreign.pair.cert))
    with secured.connect(TcpClient, certificates.ours.client(certificates.foreign_client)) as client:
        assert client.answers()
    assert secured.refuses(TcpClient, certificates.ours.client(certificates.client))


@pytest.mark.parametrize("wrong", ["missing", "garbage", "other key"])
def test_a_broker_with_files_it_cannot_use_says_so_and_does_not_start(
    start: Start, certificates: Certificates, tmp_path: Path, wrong: str
) -> None:
    cert, key = certificates.server.cert, tmp_path / "key.pem"
    if wrong != "missing":
        key.write_bytes(b"garbage" if wrong == "garbage" else certificates.client.key.read_bytes())
    broker = start("--tls-cert", cert, "--tls-key", key, ready=False)
    assert broker.wait() == 2
    assert str(key) in broker.log()
    assert len(broker.log().strip().splitlines()) == 1, broker.log()
    assert not broker.ready_file.exists()


def test_a_broker_without_tls_survives_sighup(start: Start) -> None:
    broker = start()
    broker.signal(signal.SIGHUP)
    with TcpClient(broker.tcp_port) as client:
        assert client.answers()
