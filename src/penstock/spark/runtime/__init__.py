"""Spark's own machine: a Java to run it on, a home for it, the JVM, and the session. No topics come in here."""
