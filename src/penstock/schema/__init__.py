"""Schema: what schemas mean. Parsing, compatibility, validation, the registry's decisions. No HTTP, no sockets.

Everything here that touches text or payloads from outside (`avro`, `jsonschema`, `protobuf`, `plain`) runs in the
worker (`worker`), a process with limits, and never in the broker.
"""
