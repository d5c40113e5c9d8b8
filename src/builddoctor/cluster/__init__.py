"""Other machines that run phases of this build: packing and unpacking them, nodes, keys, and the way there (Dask)."""
