"""Verdicts: why a build failed, with evidence and fixes, from a trace or from any text."""
