"""``builddoctor restore``: see ``cli.save``."""

from builddoctor.cli.save import restore

__all__ = ["restore"]
