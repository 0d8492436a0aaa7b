"""The registry: subjects, versions and schemas, and the rules for registering new versions."""
