"""The limits of the project in one place, each with its reason. Units end the name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from penstock.core.errors import InvalidRequest

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

TOPIC_CHARS_MAX: Final = 255
"""The longest file name that every supported file system can hold."""

TOPIC_LEVELS_MAX: Final = 5
"""Deep enough for domain.entity.event and two more; a trie walk stays a handful of steps."""

NAMESPACE_CHARS_MAX: Final = 60
"""Long enough for any team's name, short enough for a path and a metric label; that of its dead letters has `-dlq`
behind it."""

PARTITIONS_MAX: Final = 1024
"""A directory and two open files each: a thousand is what one process opens without tuning."""

SEGMENT_BYTES_CEILING: Final = 2 * GIB
"""Index entries hold a position in 32 bits; half of that range leaves room for the last block."""

SEGMENT_BYTES_FLOOR: Final = 4 * KIB
"""A page of any disk: a topic with smaller segments could hold no message worth sending."""

BLOCK_BYTES_CEILING: Final = 64 * MIB
"""A length beyond this is damage, not a record: nobody reads gigabytes because of a flipped bit."""

TYPE_BYTES_MAX: Final = 255
"""The record format gives the type's length one byte."""

KEY_BYTES_MAX: Final = 65_535
"""The envelope gives the key's length two bytes."""

PRODUCER_NAME_BYTES_MAX: Final = 255
"""A name for people; the envelope would hold 65,535."""

ATTRIBUTES_MAX: Final = 256
"""Headers, not a second payload; dead letters and traces add about ten."""

ATTRIBUTE_NAME_BYTES_MAX: Final = 255
"""A name for people; the envelope would hold 65,535."""

ATTRIBUTE_BYTES_MAX: Final = 256 * KIB
"""Names and values of one message together: they are copied into every dead letter."""

VERSION_CHARS_MAX: Final = 20
"""Three numbers and two dots; the founding protocol's own bound."""

REQUEST_ID_CHARS: Final = 36
"""A UUID in its usual spelling."""

REQUEST_TIMEOUT_MS_CEILING: Final = 3_600_000
"""An hour: longer waits want a durable topic."""

SERVICE_NAME_CHARS_MAX: Final = 36
"""The founding protocol's own bound; a name for lists and logs."""

SERVICE_DESCRIPTION_CHARS_MAX: Final = 1024
"""The founding protocol's own bound: a paragraph."""

LOG_PATTERN_CHARS_MAX: Final = 256
"""A filter that a person typed; it is tried on every log line."""

LIST_ENTRIES_MAX: Final = 1000
"""Entries of a system topic's answer: what a person can page through, and well below the payload limit."""

CLOCK_JUMP_MS_MAX: Final = 60_000
"""A jump of the machine's clock ahead that is followed at once: more than any step of a clock that is kept in time, and
as long as message times may be untrue after a smaller one was taken back."""

CLOCK_HOLD_MS_MAX: Final = 600_000
"""The time for which a clock that has jumped further ahead is not believed: enough to see the error and set it right. A
machine that slept, or got the time late, has times that are behind for as long."""

CLOCK_REST_MS_MAX: Final = 30 * 86_400_000
"""The time by which a clock may be past all that a data directory has seen, at its first start since the machine's,
before the log warns: a directory at rest looks like a wrong clock, and few are at rest for longer."""

QUOTED_CHARS_MAX: Final = 128
"""Characters of client input quoted in an error: enough to recognise it, too few to amplify it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits an operator may set. The defaults fit one machine; `check` refuses what the formats cannot hold."""

    payload_bytes_max: int = 1 * MIB
    """A message. Larger things belong in object storage, with their address in the message."""

    block_bytes_max: int = 16 * MIB
    """An appended block: what one write carries, and what one caller may make all others wait for."""

    segment_bytes_max: int = 64 * MIB
    """A segment rolls at this size: small enough to hash at sealing without a pause, large enough to stream."""

    segment_bytes_first: int = 256 * KIB
    """A log's first segment; each next one doubles up to the maximum, so ten thousand quiet topics fit on a disk."""

    segment_age_ms_max: int = 7 * 24 * 3600 * 1000
    """A segment rolls at this age, so that retention by time can drop what a quiet topic holds."""

    group_bytes_max: int = 4 * MIB
    """A group commit: beyond this a larger write no longer amortises the sync."""

    queue_bytes_max: int = 64 * MIB
    """Blocks waiting for the writer; past this, callers wait or are refused."""

    disk_reserve_bytes: int = 64 * MIB
    """Kept free for the catalog, cursors and recovery: appends are refused before the disk is really full."""

    quarantine_bytes_max: int = 256 * MIB
    """Copies of damaged bytes kept per log; past this, damage is only counted: a dying disk is not to be filled too."""

    open_logs_max: int = 1024
    """Logs whose files stay open at once; the least used are closed and opened again when needed."""

    def check(self) -> Limits:
        """Return self. Raises `InvalidRequest`, naming the field, if a value is impossible."""
        _check(self, _CEILINGS, _ORDER)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Limits of one connection, and of all together. An operator may set each."""

    payload_bytes_max: int = 1 * MIB
    """A message. Larger things belong in object storage, with their address in the message."""

    block_bytes_max: int = 4 * MIB
    """An `append` or `message`: many small messages, or the largest one with its headers."""

    connections_max: int = 15_000
    """Open at once over TCP and WebSocket: a few hundred MiB when they are idle. HTTP has its own."""

    http_address_connections_max: int = 768
    """Open at once over HTTP from one address, or one /64 of IPv6: three of four of all, so nobody alone has them."""

    subscriptions_max: int = 1_000
    """Subscriptions of a connection: a client with more should use a wildcard."""

    output_bytes_max: int = 8 * MIB
    """Bytes waiting to be sent to one connection: a consumer with more is too slow, and is told so and closed."""

    held_bytes_max: int = 256 * MIB
    """Bytes of all connections together: half for messages received in part, half for output that waits. Past this
    large messages wait for room, and connections that do not send on, or do not read, are closed."""

    output_wait_ms: int = 100
    """The time a publisher waits for a slow subscriber: long enough for a pause, too short to hurt others."""

    requests_open_max: int = 10_000
    """Requests waiting for their answer, of all connections: the newest is refused, none already taken is dropped."""

    request_timeout_ms: int = 5_000
    """The timeout of a request that sets none."""

    request_timeout_ms_max: int = REQUEST_TIMEOUT_MS_CEILING
    """The longest timeout a request may set."""

    heartbeat_retry_ms: int = 30_000
    """Silence after which the broker asks a client for a sign of life."""

    heartbeat_deregister_ms: int = 60_000
    """Silence after which a client is gone: its subscriptions end and its connection is closed. Half a message is
    silence too."""

    handshake_ms: int = 10_000
    """The time for TLS and for a WebSocket upgrade: slower clients hold a place for nothing."""

    drain_ms: int = 10_000
    """The time between the order to stop and the end: open requests may finish, and queued output is sent."""

    connection_rate_max: int | None = None
    """Messages a second that one connection may send; no limit unless set."""

    topic_rate_max: int | None = None
    """Messages a second that may be published to one topic; no limit unless set."""

    @property
    def answer_bytes_max(self) -> int:
        """The most bytes that a list in an answer may take: the largest payload, less 256 bytes for the fields around
        the list."""
        return max(self.payload_bytes_max - 256, 1024)

    def check(self) -> WireLimits:
        """Return self. Raises `InvalidRequest`, naming the field, if a value is impossible."""
        _check(self, _WIRE_CEILINGS, _WIRE_ORDER)
        return self


_Ceilings = tuple[tuple[str, int], ...]
_Order = tuple[tuple[str, str, str], ...]


def _check(limits: Limits | WireLimits, ceilings: _Ceilings, order: _Order) -> None:
    for field in fields(limits):
        value = getattr(limits, field.name)
        if value is None and field.default is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise InvalidRequest(f"{field.name} must be a positive whole number, not {value!r}", field=field.name)
    for name, ceiling in ceilings:
        if getattr(limits, name) > ceiling:
            raise InvalidRequest(f"{name} is at most {ceiling}, not {getattr(limits, name)}", field=name)
    for name, other, reason in order:
        if getattr(limits, name) > getattr(limits, other):
            values = f"{name} ({getattr(limits, name)}) is at most {other} ({getattr(limits, other)})"
            raise InvalidRequest(f"{values}: {reason}", field=name)


_CEILINGS: Final = (
    ("segment_bytes_max", SEGMENT_BYTES_CEILING),
    ("block_bytes_max", BLOCK_BYTES_CEILING),
)
"""The most that the formats can hold: no operator can set a larger limit."""

_ORDER: Final = (
    ("segment_bytes_first", "segment_bytes_max", "segments grow up to it"),
    ("payload_bytes_max", "block_bytes_max", "a message is never split over two blocks"),
    ("block_bytes_max", "segment_bytes_max", "a block is never split over two segments"),
)
"""Pairs of limits and a reason: the first must not be larger than the second."""

_WIRE_CEILINGS: Final = (
    ("payload_bytes_max", BLOCK_BYTES_CEILING),
    ("block_bytes_max", BLOCK_BYTES_CEILING),
    ("request_timeout_ms_max", REQUEST_TIMEOUT_MS_CEILING),
)
"""The most that the protocol can hold: no operator can set a larger limit."""

_WIRE_ORDER: Final = (
    ("payload_bytes_max", "output_bytes_max", "a message must fit into what may wait for one connection"),
    ("output_bytes_max", "held_bytes_max", "what one connection may hold is a part of what all may"),
    ("block_bytes_max", "held_bytes_max", "a message must fit into what all connections may hold"),
    ("request_timeout_ms", "request_timeout_ms_max", "the default is itself a timeout"),
    ("heartbeat_retry_ms", "heartbeat_deregister_ms", "whoever is silent is asked before being given up"),
)
"""Pairs of limits and a reason: the first must not be larger than the second."""
