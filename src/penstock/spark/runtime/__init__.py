"""Spark's own machinery: a Java to run it on, its home, the JVM, and the session. Nothing here knows topics."""
