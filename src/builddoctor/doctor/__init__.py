"""Checks before a build: host, toolchain and source, each a function from what was read to lines for a person."""
