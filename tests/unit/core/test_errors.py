"""The table of exit codes."""

from __future__ import annotations

import pytest

from builddoctor.core.errors import BuildDoctorError, UsageError, exit_codes

TAKEN_BY_OTHERS = (0, 1, 2, 9, 130, 137, 255)


def test_every_error_has_a_code_of_its_own() -> None:
    """No two classes share an exit code."""
    codes = [code for code, _, _ in exit_codes()]
    assert len(codes) == len(set(codes)) > 10


@pytest.mark.parametrize("code", TAKEN_BY_OTHERS)
def test_codes_of_compilers_and_shells_are_not_ours(code: int) -> None:
    """What nvcc, ninja and shells end with never means an error of builddoctor."""
    assert code not in [ours for ours, _, _ in exit_codes()]


@pytest.mark.parametrize(("code", "name", "meaning"), exit_codes())
def test_every_error_says_what_it_means(code: int, name: str, meaning: str) -> None:
    """Each class has a docstring of its own, a code that a process can have, and the usual ending of its name."""
    assert meaning.endswith((".", ":"))
    assert 1 < code < 126 or code in (126, 127)
    assert name.endswith("Error")


def test_the_table_is_whole_and_in_order() -> None:
    """Subclasses of subclasses are in it, ordered by code."""
    table = exit_codes()
    assert table == sorted(table)
    assert ("UsageError", 64) in [(name, code) for code, name, _ in table]
    assert ("BuildDoctorError", 70) in [(name, code) for code, name, _ in table]


def test_an_error_has_a_message_and_a_hint() -> None:
    """``str`` is what happened; the hint is beside it, and may be empty."""
    assert str(UsageError("what", hint="next")) == "what"
    assert UsageError("what", hint="next").hint == "next"
    assert BuildDoctorError("what").hint == ""
