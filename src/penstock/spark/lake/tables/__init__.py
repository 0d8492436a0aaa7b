"""Tables of a lakehouse behind one interface: Delta, Iceberg, plain Parquet."""
