"""Named machines for planning: figures with their sources, as TOML."""
