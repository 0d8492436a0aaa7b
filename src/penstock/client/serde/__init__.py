"""Values as payloads and back: codecs for each schema language, and the client of the schema registry."""
