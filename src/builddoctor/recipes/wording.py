"""What may stand where in a recipe, in words. Pure.

Covers: the kinds of text and of numbers that ``model.recipe`` names. The reference page is made from the same words.
"""

from __future__ import annotations

import typing

import msgspec

from builddoctor.model import recipe as model


class KindOfText(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of text."""

    name: str
    """as the model calls it"""
    words: str
    example: str


_TEXTS = {
    "Place": KindOfText(
        name="Place",
        words="a path below the project's folder, without .. and without characters that a shell reads, up to 400",
        example="src/gemm/gemm.cu",
    ),
    "Word": KindOfText(
        name="Word", words="a name or version of letters, digits and . _ + -, up to 100", example="13.0.88"
    ),
    "Line": KindOfText(
        name="Line", words="one line of text, without control characters, up to 1000", example="cicc needs 17 GiB"
    ),
    "Digest": KindOfText(
        name="Digest", words="a digest of 8 to 64 of the characters 0 to 9 and a to f", example="5d1f09aa"
    ),
    "Day": KindOfText(name="Day", words="a day as text", example="2026-01-31"),
    "Arch": KindOfText(name="Arch", words="one architecture such as sm_90, sm_100a or compute_90", example="sm_100a"),
    "VariableName": KindOfText(
        name="VariableName", words="a variable's name of capitals, digits and _, up to 64", example="MAX_JOBS"
    ),
    "VariableValue": KindOfText(
        name="VariableValue",
        words="a variable's value of letters, digits, blanks and . ; , _ + : = -, up to 200",
        example="9.0;10.0",
    ),
}

NUMBERS = {
    "Mib": "a size in MiB, from 0 to 100,000,000",
    "CoreSeconds": "seconds of one core, from 0 to 1,000,000",
    "Runs": "a whole number, from 0 to 1,000,000",
}


def texts() -> dict[str, KindOfText]:
    """Kinds of text by the pattern that the model has for them."""
    return {_pattern(name): kind for name, kind in _TEXTS.items()}


def _pattern(name: str) -> str:
    meta = typing.get_args(getattr(model, name))[1]
    return str(meta.pattern)
