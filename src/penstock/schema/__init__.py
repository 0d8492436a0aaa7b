"""The schema room: parsing, compatibility and validation of schemas, and the registry's decisions. No HTTP, no sockets.

Code that touches text or payloads from outside (`avro`, `jsonschema`, `protobuf`, `plain`) runs in the worker process
(`worker`), which has limits, and never in the broker.
"""
