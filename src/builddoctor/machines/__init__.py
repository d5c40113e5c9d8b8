"""Named machines for planning: figures with their sources."""
