"""The start of Spark: finding a Java, Spark's home directory, the JVM, and the session. Nothing here knows topics."""
