"""Sources of the bytes of logs and schemas: a directory, an object store, a broker. Nothing here imports Spark."""
