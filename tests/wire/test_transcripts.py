r"""Golden transcripts: whole conversations with a real broker, on both transports, as a person would write them down.

`A> ` is sent by connection A and `A< ` is what it hears next. A backslash n is a newline, `\xff` a byte. `@7` is a
request id of the sender's; `<x>` an id or a time that the broker makes up: the same name is the same value. `A - `
closes A, `A # ` waits until A is closed. `...` at the end of what is heard stands for anything.

Those named `founding-` hold what the founding system's own server answered, as it was recorded there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.wire.conftest import Connect
from tests.wire.kit import TIME, UUID, Party

FOLDER: Final = Path(__file__).parent / "transcripts"
_LINE: Final = re.compile(r"([A-Z])(> |< |<$|>$| - | # )(.*)")
_BYTE: Final = re.compile(r"\\x([0-9a-f]{2})")
_NAME: Final = re.compile(r"<([a-z]+\d*)>")


def read(file: Path) -> Iterator[tuple[int, str, str, str]]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            found = _LINE.fullmatch(line)
            assert found, f"{file.name}:{number}: {line!r} is not a line of a transcript"
            yield number, found[1], found[2].strip(), found[3]


class Names:
    """The names that the broker has made up so far."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def sent(self, text: str) -> bytes:
        text = re.sub(r"@(\d+)", lambda found: f"00000000-0000-4000-8000-{int(found[1]):012}", text)
        text = _NAME.sub(lambda found: self._known[found[1]], text).replace("\\n", "\n")
        parts = _BYTE.split(text)
        return b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))

    def agrees(self, wanted: str, heard: str) -> bool:
        """Return True if the received text is the written one, filling in names as they come."""
        wanted = re.sub(r"@(\d+)", lambda found: f"00000000-0000-4000-8000-{int(found[1]):012}", wanted)
        wanted = wanted.replace("\\n", "\n")
        rest = wanted.endswith("...")
        parts = _NAME.split(wanted.removesuffix("..."))
        pattern = ""
        for place, part in enumerate(parts):
            pattern += self._pattern(part) if place % 2 else re.escape(part)
        found = re.fullmatch(pattern + (".*" if rest else ""), heard, re.DOTALL)
        if found is not None:
            self._known |= {name: value for name, value in found.groupdict().items() if name != "time"}
        return found is not None

    def _pattern(self, name: str) -> str:
        if name == "time":
            return TIME.pattern
        return re.escape(self._known[name]) if name in self._known else f"(?P<{name}>{UUID.pattern})"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda file: file.stem)
def test_the_broker_says_what_is_written(connect: Connect, file: Path) -> None:
    connections: dict[str, Party] = {}
    names = Names()
    for number, who, what, text in read(file):
        if who not in connections:
            connections[who] = connect()
        where = f"{file.name}:{number}"
        match what:
            case ">":
                connections[who].send(names.sent(text))
            case "-":
                connections.pop(who).close()
            case "#":
                assert connections[who].receive() is None, where
            case "<":
                heard = connections[who].receive()
                assert heard is not None, f"{where}: closed"
                assert names.agrees(text, heard.decode(errors="replace")), (
                    f"{where}:\n wanted {text!r}\n heard  {heard!r}"
                )
