"""Limits of Protobuf schemas beyond those of every schema: a hostile one is refused in a fraction of a second."""

from __future__ import annotations

from typing import Final

from penstock.core.schemas import SCHEMA_BYTES_MAX

TOKENS_MAX: Final = 30_000
"""Tokens of a schema and all that it imports together: some five thousand lines, which bounds the time of parsing."""

TYPES_MAX: Final = 2_000
"""Messages and enums of one file: the largest public files have a few hundred."""

MESSAGE_DEPTH_MAX: Final = 31
"""Depth of messages within messages, the limit of protoc."""

DESCRIPTOR_BYTES_MAX: Final = SCHEMA_BYTES_MAX // 4
"""Bytes of a serialised descriptor. It has no comments and no spaces, and two of its bytes can make an object in
memory."""

FULL_NAME_CHARS_MAX: Final = 512
"""Characters of a full name: each element within has it in its own name again."""

REFUSAL_CHARS_MAX: Final = 400
"""Characters of an error message: it may quote text from outside."""

PACKAGE_PARTS_MAX: Final = 32
"""Parts of a package name: each is a scope in which names are searched."""

PAYLOAD_DEPTH_MAX: Final = 100
"""Depth of messages within messages in a payload, the limit of every Protobuf library."""

PAYLOAD_STEPS_MAX: Final = 20_000
"""Fields of a payload that are visited one by one to diagnose it, which is slow."""

NUMBER_MAX: Final = 536_870_911
"""The largest field number: 29 bits, the other three of a tag say how the field is encoded."""

LIBRARY_NUMBERS: Final = range(19_000, 20_000)
"""Field numbers that Protobuf reserves for itself."""

INT32_MAX: Final = 2**31 - 1
