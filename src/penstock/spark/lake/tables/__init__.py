"""Tables of a lakehouse behind one seam: Delta, Iceberg, plain Parquet."""
