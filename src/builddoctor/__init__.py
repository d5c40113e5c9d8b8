"""builddoctor: run the build you already have; no compiler process starts before its memory is there."""

__version__ = "0.1.0"
