"""The options of the source: one table of them, and the values they become.

Names follow the habits of Spark's Kafka connector. Spark passes them in lower case and as texts; a wrong option is
refused with its name, the given text, and the allowed values. Spark is not imported here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName
from penstock.spark.decode.options import Mode, Unnamed
from penstock.spark.files.location import Location
from penstock.spark.scan.columns import ATTRIBUTES, DEFAULT_NAMES, NAMES
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.offset_counts import SLICE_BYTES as COUNT_SLICE_BYTES
from penstock.spark.scan.where import WHERE, parse_where
from penstock.spark.source import option_values as values
from penstock.spark.source.offsets import ReadBound, parse_bound
from penstock.spark.source.option_values import Decode, Framing, Rows

STORAGE: Final = "storage."
"""The prefix of options for the object store's client, and of those with the files for connecting to the broker."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `parse` turns its text into a value; for a text that is not allowed it raises `ValueError` or a
    `PenstockError`. `allowed` describes the allowed texts for the user."""

    name: str
    parse: Callable[[str], Any]
    allowed: str
    default: str | None = None


_FLAG: Final = "true or false"
_COUNT: Final = "a whole number from 1 on"
_SIZE: Final = "a size such as 1048576, 64MiB or 1GB"
_TIME: Final = "Unix milliseconds (1767225600000) or a time such as 2026-01-31T12:00:00Z"
_OFFSETS: Final = (
    'earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest'
)

OPTIONS: Final[tuple[Option, ...]] = (
    Option("path", values.plain, "a data directory, or the URL of an object store (s3://bucket/data)"),
    Option("url", values.plain, "the HTTP address of a broker (http://127.0.0.1:7452)"),
    Option("subscribe", values.topics, "topics, with commas between them (orders,/shop/carts)"),
    Option("subscribePattern", values.pattern, "a regular expression for whole topic names (orders[.].*, /shop/.*)"),
    Option("startingOffsets", parse_bound, _OFFSETS),
    Option("endingOffsets", parse_bound, _OFFSETS),
    Option("startingTimestamp", values.time_ms, _TIME),
    Option("endingTimestamp", values.time_ms, _TIME),
    Option("maxOffsetsPerTrigger", values.count, _COUNT),
    Option("maxBytesPerTrigger", values.size, _SIZE),
    Option("minPartitions", values.count, _COUNT),
    Option("sliceBytes", values.size, _SIZE),
    Option("failOnDataLoss", values.flag, _FLAG, "true"),
    Option("includeAttributes", values.flag, _FLAG, "false"),
    Option("verify", values.flag, _FLAG, "true"),
    Option("columns", values.columns, f"names with commas between them, of {', '.join(NAMES)}"),
    Option("rows", values.lower(Rows), "records, slices, counts or hours", "records"),
    Option("where", parse_where, WHERE),
    Option("pushdown", values.flag, _FLAG, "false"),
    Option("subscription", values.subscription, "the name under which the broker shows the progress of this query"),
    Option("broker", values.broker, "HOST:PORT of a broker"),
    Option("registry", values.plain, "the URL of a registry, or a file that `penstock schema export` made"),
    Option("decode", values.lower(Decode), "none or registry", "none"),
    Option("decodeSchema", values.pick, "latest, merged, or the number of a version", "latest"),
    Option("decodeMode", values.lower(Mode), "fail, null or quarantine", "fail"),
    Option("decodeUnnamed", values.lower(Unnamed), "bad or latest", "bad"),
    Option("decodeFraming", values.lower(Framing), "none, confluent or auto", "none"),
    Option("badRecords", values.directory, "a directory for what does not decode"),
)
"""Every option except the `storage.` ones."""

_BY_KEY: Final[Mapping[str, Option]] = {option.name.lower(): option for option in OPTIONS}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "serialization.format", "provider"})
"""Options that Spark may add by itself, or that users give to reader and writer at once."""


def parse(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every option by its name: the given one, else the default, else None.

    Options of Spark itself and those of the object store (`storage.`) are skipped. Raises `InvalidRequest` for the
    first option that is unknown or wrong.
    """
    found: dict[str, Any] = {}
    for key, text in given.items():
        option = _BY_KEY.get(key.lower())
        if option is not None:
            found[option.name] = _parse_text(option, str(text))
        elif not key.lower().startswith(STORAGE) and key.lower() not in _SPARKS_OWN:
            raise _unknown_option(key)
    for option in OPTIONS:
        if option.name not in found:
            found[option.name] = None if option.default is None else option.parse(option.default)
    return found


def _parse_text(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, PenstockError) as error:
        why = f" ({error})" if isinstance(error, PenstockError) or str(error).startswith("it is") else ""
        raise InvalidRequest(
            f"option {option.name} is {text!r}{why}: allowed is {option.allowed}",
            option=option.name,
            given=text,
            allowed=option.allowed,
        ) from None


def _unknown_option(key: str) -> InvalidRequest:
    near = get_close_matches(key.lower(), _BY_KEY, n=1)
    names = ", ".join(option.name for option in OPTIONS)
    hint = f"did you mean {_BY_KEY[near[0]].name}?" if near else f"there are {names} and storage.*"
    return InvalidRequest(f"there is no option {key!r}: {hint}", option=key, allowed=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    pick: str
    mode: Mode
    registry: str | None
    bad_records: str | None
    unnamed: Unnamed = Unnamed.BAD
    framing: Framing = Framing.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read, checked as far as that is possible without reading the log."""

    location: Location
    topics: tuple[TopicName, ...]
    pattern: re.Pattern[str] | None
    starting: ReadBound
    ending: ReadBound
    offsets_max: int | None
    bytes_max: int | None
    slices_min: int
    slice_bytes: int | None
    """The approximate size of a slice in bytes; None lets the plan choose it by the amount of data."""
    fail_on_data_loss: bool
    verify: bool
    columns: tuple[str, ...]
    rows: Rows
    where: Filters
    pushdown: bool
    subscription: str | None
    broker: str | None
    decode: DecodeOptions | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
        """Parse and check options. `streaming` says if they are for a stream or a batch.

        With None that is not known yet, and options that only fit one of the two are not checked. Raises
        `InvalidRequest` with the name of the option, the given text and the allowed values, or with the options that
        exclude each other.
        """
        found = parse(given)
        _check_together(found, streaming=streaming)
        return cls(
            location=_location(given, found),
            topics=found["subscribe"] or (),
            pattern=found["subscribePattern"],
            starting=_bounds(found, "starting", "latest" if streaming else "earliest"),
            ending=_bounds(found, "ending", "latest"),
            offsets_max=found["maxOffsetsPerTrigger"],
            bytes_max=found["maxBytesPerTrigger"],
            slices_min=found["minPartitions"] or 0,
            slice_bytes=COUNT_SLICE_BYTES if found["rows"].counted else found["sliceBytes"],
            fail_on_data_loss=found["failOnDataLoss"],
            verify=found["verify"],
            columns=_chosen_columns(found),
            rows=found["rows"],
            where=found["where"] or NO_FILTERS,
            pushdown=found["pushdown"],
            subscription=found["subscription"],
            broker=found["broker"],
            decode=_decode(found),
        )


def _location(given: Mapping[str, str], found: Mapping[str, Any]) -> Location:
    storage = {key[len(STORAGE) :]: str(text) for key, text in given.items() if key.lower().startswith(STORAGE)}
    return Location.parse(path=found["path"], url=found["url"], storage_options=storage)


def _bounds(found: Mapping[str, Any], which: str, default: str) -> ReadBound:
    offsets, time_ms = found[f"{which}Offsets"], found[f"{which}Timestamp"]
    if time_ms is not None:
        return ReadBound(time_ms=time_ms)
    bounds: ReadBound = parse_bound(default) if offsets is None else offsets
    return bounds


def _chosen_columns(found: Mapping[str, Any]) -> tuple[str, ...]:
    names: tuple[str, ...] = found["columns"] or DEFAULT_NAMES
    if found["includeAttributes"] and ATTRIBUTES not in names:
        return (*names, ATTRIBUTES) if found["columns"] else NAMES
    return names


def _decode(found: Mapping[str, Any]) -> DecodeOptions | None:
    if found["decode"] is Decode.NONE:
        return None
    return DecodeOptions(
        pick=found["decodeSchema"],
        mode=found["decodeMode"],
        registry=found["registry"],
        bad_records=found["badRecords"],
        unnamed=found["decodeUnnamed"],
        framing=found["decodeFraming"],
    )


def _check_together(found: Mapping[str, Any], *, streaming: bool | None) -> None:
    """Raise `InvalidRequest` for options that are valid alone and exclude each other."""
    if (found["subscribe"] is None) == (found["subscribePattern"] is None):
        was = "neither is" if found["subscribe"] is None else "both are"
        raise InvalidRequest(f"which topics? Give one of subscribe and subscribePattern: {was} given")
    for which in ("starting", "ending"):
        if found[f"{which}Offsets"] is not None and found[f"{which}Timestamp"] is not None:
            raise InvalidRequest(f"{which}Offsets and {which}Timestamp are both given: give one")
    rows = found["rows"]
    if rows is not Rows.RECORDS and (found["columns"] or found["where"] or found["decode"] is not Decode.NONE):
        raise InvalidRequest(
            f"rows is {rows.value!r}, for which no message is read: columns, where and decode are for records"
        )
    if found["badRecords"] is not None and found["decodeMode"] is not Mode.QUARANTINE:
        raise InvalidRequest(
            f"badRecords is for decodeMode quarantine, and decodeMode is {found['decodeMode'].value!r}"
        )
    if streaming is not None:
        (_check_stream if streaming else _check_batch)(found)


def _check_stream(found: Mapping[str, Any]) -> None:
    if found["subscription"] is not None and found["broker"] is None:
        raise InvalidRequest(
            f"subscription is {found['subscription']!r}, and broker does not say where: give HOST:PORT"
        )
    for name in ("endingOffsets", "endingTimestamp"):
        if found[name] is not None:
            raise InvalidRequest(
                f"{name} is for a batch: a stream ends when it is stopped, or with the trigger availableNow",
                option=name,
            )


def _check_batch(found: Mapping[str, Any]) -> None:
    if found["startingOffsets"] == ReadBound(word="latest"):
        raise InvalidRequest(
            "startingOffsets is 'latest': a batch that begins there is empty", option="startingOffsets"
        )
    if found["endingOffsets"] == ReadBound(word="earliest"):
        raise InvalidRequest("endingOffsets is 'earliest': a batch that ends there is empty", option="endingOffsets")
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "subscription"):
        if found[name] is not None:
            raise InvalidRequest(f"{name} is for a stream: a batch reads its range once", option=name)
