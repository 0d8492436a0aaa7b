"""What a Protobuf schema may be, beyond what every schema may: a hostile one is refused in a fraction of a second."""

from __future__ import annotations

from typing import Final

from penstock.core.schemas import SCHEMA_BYTES_MAX

TOKENS_MAX: Final = 30_000
"""Of a schema and all that it imports together: some five thousand lines, and all the time a parse may take."""

TYPES_MAX: Final = 2_000
"""Messages and enums of one file: the largest public files have a few hundred."""

MESSAGE_DEPTH_MAX: Final = 31
"""Of messages within messages, as protoc has it."""

DESCRIPTOR_BYTES_MAX: Final = SCHEMA_BYTES_MAX // 4
"""Of a serialised descriptor. It has no comments and no spaces, and two of its bytes can make an object in memory."""

FULL_NAME_CHARS_MAX: Final = 512
"""Of a name with all that it is within: each thing below has it in its own name again."""

REFUSAL_CHARS_MAX: Final = 400
"""Of the sentence that says what is wrong: it may quote what somebody else wrote."""

PACKAGE_PARTS_MAX: Final = 32
"""Each is a scope that names are looked for in."""

PAYLOAD_DEPTH_MAX: Final = 100
"""Of messages within messages in a payload, as every Protobuf library has it."""

PAYLOAD_STEPS_MAX: Final = 20_000
"""Fields of a payload that are looked at one by one to say what is wrong with it, which is slow."""

NUMBER_MAX: Final = 536_870_911
"""Of a field: 29 bits, the other three of a tag say how it is encoded."""

LIBRARY_NUMBERS: Final = range(19_000, 20_000)
"""Kept by Protobuf for itself."""

INT32_MAX: Final = 2**31 - 1
