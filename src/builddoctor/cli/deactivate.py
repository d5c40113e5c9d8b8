"""``builddoctor deactivate``: see ``cli.activate``."""

from builddoctor.cli.activate import deactivate

__all__ = ["deactivate"]
