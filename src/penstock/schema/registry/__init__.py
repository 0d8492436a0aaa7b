"""The registry: subjects, versions and schemas, and the rules for what may be added."""
