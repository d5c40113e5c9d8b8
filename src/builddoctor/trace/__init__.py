"""The trace: an append-only journal of a build that survives the death of everything that writes it."""
