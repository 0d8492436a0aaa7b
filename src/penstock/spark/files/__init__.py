"""Where the bytes of logs and schemas come from: a directory, an object store, a broker. No Spark comes in here."""
