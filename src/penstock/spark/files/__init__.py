"""Reading of the files of logs and schemas from a directory, an object store or a broker. Nothing here imports
Spark."""
