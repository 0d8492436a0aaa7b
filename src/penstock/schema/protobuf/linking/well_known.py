"""Files that every schema may import without a reference, as with protoc and other registries."""

from __future__ import annotations

from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

from penstock.schema.protobuf.limits import TOKENS_MAX
from penstock.schema.protobuf.linking.source import SourceFile, read_source

_DAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS: Final = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY"),
    *("AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)
_PERIODS: Final = ("DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR")
_CLOCK: Final = ("hours", "minutes", "seconds", "nanos")
_CALENDAR: Final = ("year", "month", "day")


def _enum(name: str, unspecified: str, values: tuple[str, ...]) -> str:
    body = "".join(f"{value} = {number};" for number, value in enumerate((f"{unspecified}_UNSPECIFIED", *values)))
    return f"enum {name} {{{body}}}"


def _message(name: str, *fields: str) -> str:
    """Return the text of a message. Each field is a type and a name; they are numbered from 1."""
    body = "".join(f"{field} = {number};" for number, field in enumerate(fields, 1))
    return f"message {name} {{{body}}}"


def _all(type_: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{type_} {name}" for name in names)


def _file(package: str, *declarations: str) -> str:
    imports = "".join(declaration for declaration in declarations if declaration.startswith("import"))
    rest = "".join(declaration for declaration in declarations if not declaration.startswith("import"))
    return f'syntax = "proto3"; {f"package {package};" if package else ""} {imports} {rest}'


def _google(*declarations: str) -> str:
    return _file("google.type", *declarations)


_META: Final = "".join(
    f"extend google.protobuf.{options} {{ Meta {name}_meta = 1088; }}"
    for options, name in (
        ("FileOptions", "file"),
        ("MessageOptions", "message"),
        ("FieldOptions", "field"),
        ("EnumOptions", "enum"),
        ("EnumValueOptions", "enum_value"),
    )
)

TEXTS: Final[dict[str, str]] = {
    "confluent/meta.proto": _file(
        "confluent",
        'import "google/protobuf/descriptor.proto";',
        _message("Meta", "string doc", "map<string, string> params", "repeated string tags", "repeated Rule rules"),
        _message("Rule", *_all("string", "name", "doc", "expr", "sql")),
        _META,
    ),
    "confluent/type/decimal.proto": _file(
        "confluent.type", _message("Decimal", "bytes value", "uint32 precision", "int32 scale")
    ),
    "confluent/type/variant.proto": _file("confluent.type", _message("Variant", *_all("bytes", "metadata", "value"))),
    "confluent/types/decimal.proto": _file("", 'import public "confluent/type/decimal.proto";'),
    "google/type/calendar_period.proto": _google(_enum("CalendarPeriod", "CALENDAR_PERIOD", _PERIODS)),
    "google/type/color.proto": _google(
        'import "google/protobuf/wrappers.proto";',
        _message("Color", *_all("float", "red", "green", "blue"), "google.protobuf.FloatValue alpha"),
    ),
    "google/type/date.proto": _google(_message("Date", *_all("int32", *_CALENDAR))),
    "google/type/datetime.proto": _google(
        'import "google/protobuf/duration.proto";',
        _message("DateTime", *_all("int32", *_CALENDAR, *_CLOCK)).removesuffix("}"),
        "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }",
        _message("TimeZone", *_all("string", "id", "version")),
    ),
    "google/type/dayofweek.proto": _google(_enum("DayOfWeek", "DAY_OF_WEEK", _DAYS)),
    "google/type/decimal.proto": _google(_message("Decimal", "string value")),
    "google/type/expr.proto": _google(
        _message("Expr", *_all("string", "expression", "title", "description", "location"))
    ),
    "google/type/fraction.proto": _google(_message("Fraction", *_all("int64", "numerator", "denominator"))),
    "google/type/interval.proto": _google(
        'import "google/protobuf/timestamp.proto";',
        _message("Interval", *_all("google.protobuf.Timestamp", "start_time", "end_time")),
    ),
    "google/type/latlng.proto": _google(_message("LatLng", *_all("double", "latitude", "longitude"))),
    "google/type/localized_text.proto": _google(_message("LocalizedText", *_all("string", "text", "language_code"))),
    "google/type/money.proto": _google(_message("Money", "string currency_code", "int64 units", "int32 nanos")),
    "google/type/month.proto": _google(_enum("Month", "MONTH", _MONTHS)),
    "google/type/phone_number.proto": _google(
        "message PhoneNumber { oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3;",
        _message("ShortCode", *_all("string", "region_code", "number")) + "}",
    ),
    "google/type/postal_address.proto": _google(
        _message(
            "PostalAddress",
            "int32 revision",
            *_all("string", "region_code", "language_code", "postal_code", "sorting_code", "administrative_area"),
            *_all("string", "locality", "sublocality"),
            *_all("repeated string", "address_lines", "recipients"),
            "string organization",
        )
    ),
    "google/type/quaternion.proto": _google(_message("Quaternion", *_all("double", *"xyzw"))),
    "google/type/timeofday.proto": _google(_message("TimeOfDay", *_all("int32", *_CLOCK))),
}


_MODULES: Final = (
    *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2),
    *(source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2),
)
_FILES: Final[dict[str, bytes]] = {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in _MODULES}


ALWAYS: Final = frozenset(_FILES)
"""Files that are the same for every schema, even if a reference has that name."""


def well_known(name: str) -> SourceFile | None:
    """Return the well-known file of that name, not linked yet; None if there is none."""
    if name in _FILES:
        return SourceFile(descriptor_pb2.FileDescriptorProto.FromString(_FILES[name]))
    return read_source(TEXTS[name], name, TOKENS_MAX) if name in TEXTS else None
