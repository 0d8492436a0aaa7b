"""Events over HTTP: messages in with a POST, everything that topics hold out as a stream. For curl and any language."""
