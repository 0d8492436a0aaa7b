"""Values as payloads and back: the languages of schemas, the client's view of the registry."""
