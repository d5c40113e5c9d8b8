"""Lines of pages: signs, names that do not fit, labels, tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from builddoctor.ui.layout import ASCII, UNICODE, Column, keep_end, labelled, signs_for, table
from support.pages import plain


def test_a_long_path_keeps_its_end() -> None:
    """There it differs from the others; folders are cut at their border where that is near."""
    assert keep_end("transformer_engine/common/activation/gelu.cu", 30, "…") == "…/common/activation/gelu.cu"
    assert keep_end("a_very_long_name_of_a_file_indeed.cu", 12, "...") == "...indeed.cu"
    assert keep_end("src/編譯器核心.cu", 10, "…") == "…器核心.cu"
    assert keep_end("short.cu", 30, "…") == "short.cu"


@pytest.mark.parametrize(
    ("env", "unicode"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "C.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, False),
    ],
)
def test_signs_follow_the_locale_and_the_terminal(env: dict[str, str], unicode: bool) -> None:
    """LC_ALL before LC_CTYPE before LANG, as programs in C have it."""
    assert signs_for(env) is (UNICODE if unicode else ASCII)


def test_a_table_is_as_wide_as_what_it_holds_and_names_get_the_rest() -> None:
    """Figures stand right, the longest name keeps its end, and no line is wrapped."""
    columns = [Column("peak", right=True), Column("unit", name=True), Column("worst")]
    rows = [["1.2 GiB", "deep/" * 30 + "gelu.cu", "cicc"], ["900 MiB", "a.cu", ""]]
    head, first, second = plain(table(columns, rows, width=40))
    assert head.split() == ["peak", "unit", "worst"]
    assert (len(first), head.index("worst")) == (39, first.index("cicc"))
    assert first.startswith("1.2 GiB  …/")
    assert "/gelu.cu  cicc" in first
    assert second == "900 MiB  a.cu"


def test_a_table_without_a_width_has_whole_names() -> None:
    """What reads a file or a pipe gets what there is."""
    rows = plain(table([Column("unit", name=True), Column("x")], [["deep/" * 99 + "gelu.cu", "1"]]))
    assert rows[1] == "deep/" * 99 + "gelu.cu  1"


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5), st.integers(20, 60))
def test_whatever_a_table_holds_is_one_line_a_row_without_control_characters(
    rows: list[tuple[str, str]], width: int
) -> None:
    """Names come from anybody's files."""
    lines = table([Column("a", right=True), Column("b", name=True)], rows, width=width)
    assert len(lines) == len(rows) + 1
    assert all(line.plain.isprintable() for line in lines)


def test_colour_of_a_cell_stays_with_it() -> None:
    """And changes no word."""
    (_, row) = table([Column("a", right=True)], [[Text("+12%", style="red")]])
    assert [str(span.style) for span in row.spans] == ["red"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_labelled_text_goes_on_under_itself(width: int) -> None:
    """Nothing for no text."""
    first, *rest = plain(labelled("why", "it does not fit " * 9, width))
    assert first.startswith("  why     it does")
    assert rest
    assert all(line.startswith(" " * 10) and len(line) <= max(width, 30) for line in rest)
    assert labelled("why", "", width) == []
