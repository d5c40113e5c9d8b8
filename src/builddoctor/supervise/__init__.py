"""Wires sensors, policy, gates and trace together; holds the only event loop."""
