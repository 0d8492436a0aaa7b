"""The catalog: topics, producers, subscriptions, schemas and access of a data directory, in SQL."""
