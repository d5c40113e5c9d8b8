"""A trace in the formats of other tools: Perfetto, CSV, SQLite, Parquet."""
