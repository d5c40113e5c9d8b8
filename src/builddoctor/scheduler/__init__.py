"""Decisions without I/O: events in, actions out. The same code in production, simulation and property tests."""
