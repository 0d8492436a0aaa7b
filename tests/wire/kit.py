"""A party to a conversation: whole messages each way, over TCP or a WebSocket."""

from __future__ import annotations

import re

from tests.server.kit import BINARY, TEXT, Ended, TcpClient, WsClient, ws_frame

from penstock.testing import RunningBroker

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Party:
    def __init__(self, broker: RunningBroker, transport: str) -> None:
        if transport == "tcp":
            self._link: TcpClient | WsClient = TcpClient(broker.tcp_port, greet=False)
        else:
            self._link = WsClient(broker.ws_port, greet=False)
            self._link.or_close(self._link.upgraded)

    def send(self, message: bytes) -> None:
        """Send a frame; on a WebSocket as text if it is text."""
        if isinstance(self._link, TcpClient):
            self._link.raw(self._link.frame(message))
            return
        try:
            message.decode()
        except UnicodeDecodeError:
            self._link.raw(ws_frame(BINARY, message))
        else:
            self._link.raw(ws_frame(TEXT, message))

    def receive(self) -> bytes | None:
        """The next message; None if the connection is closed."""
        try:
            heard = self._link.receive()
        except Ended:
            return None
        return heard.header.encode() + b"\n" + heard.payload

    def close(self) -> None:
        self._link.close()


def normalised(message: bytes) -> str:
    """Ids that a server makes up are `<uuid>`, times `<time>`; the sender's own ids stay."""
    text = message.decode(errors="replace")
    made_up = UUID.sub(lambda found: found[0] if found[0].startswith("00000000-0000-4000") else "<uuid>", text)
    return TIME.sub("<time>", made_up)
