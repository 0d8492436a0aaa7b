"""Events over HTTP: publish with a POST, read topics as a stream of events. For curl and any language."""
