"""The line of a log that says why the build failed.

``by_findings``: where some text of the log is known; ``unknown_cause``: where none is.
"""
