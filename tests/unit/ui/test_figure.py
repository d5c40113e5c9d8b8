"""The picture of memory as PNG and SVG."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import matplotlib.font_manager  # noqa: F401 - the first one on a machine asks fc-list for fonts: before no test may
import pytest

from builddoctor.core.errors import BuildDoctorError
from builddoctor.trace.analysis import take_picture
from builddoctor.trace.picture import Picture
from builddoctor.trace.reader import TraceReader
from builddoctor.ui.figure import drawn
from builddoctor.ui.page.words import Words
from support.made_traces import Made, unit_of, usual_units, write_trace

WORDS = Words(
    state="bad", label="Failed: too big", headline="cicc of <b>$x_1^2$ & gelu.cu</b>", because="It does not fit."
)


def _picture(folder: Path, build: Made) -> Picture:
    return take_picture(TraceReader(write_trace(folder / "t.jsonl", build)), most_moments=100)


def test_svg_says_what_is_seen(tmp_path: Path) -> None:
    """Text stays text: title, limit, budget, tools, peak and kill; a name is neither formula nor tag."""
    units = usual_units(cutlass_grouped_gemm={"cicc": "too-big"})
    svg = drawn(_picture(tmp_path, Made(units=units, limit_mib=4096, budget_mib=3686)), WORDS, "svg").decode()
    for word in (
        "limit",
        "budget",
        "reserve",
        "cicc",
        "ptxas",
        "killed",
        "peak 3.8 GiB: cicc sm_100 of cutlass_grouped",
    ):
        assert word in svg
    assert "cicc of &lt;b&gt;$x_1^2$ &amp; gelu.cu&lt;/b&gt;" in svg


def test_same_picture_gives_the_same_file(tmp_path: Path) -> None:
    """Byte for byte, in both kinds."""
    picture = _picture(tmp_path, Made(units=usual_units(), stop_at_s=40.0))
    for kind in ("png", "svg"):
        assert drawn(picture, WORDS, kind) == drawn(picture, WORDS, kind)
    assert drawn(picture, WORDS, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["\u4f60\u597d.cu", "\x1b[31m.cu", "$\\frac{1}{0}$.cu", "a" * 5000])
def test_any_name_can_be_drawn(name: str, tmp_path: Path) -> None:
    """Signs that no font has, control characters, formulas, and no end of letters."""
    build = Made(units=[unit_of(name, device_mib=300, wall_s=3)])
    assert drawn(_picture(tmp_path, build), WORDS, "png").startswith(b"\x89PNG")


def test_an_empty_trace_can_be_drawn(tmp_path: Path) -> None:
    """Axes, limit and budget."""
    assert drawn(_picture(tmp_path, Made(units=[])), WORDS, "png").startswith(b"\x89PNG")


def test_without_matplotlib_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra, not a part of every installation."""
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BuildDoctorError) as caught:
        drawn(_picture(tmp_path, Made(units=[])), WORDS, "png")
    assert caught.value.hint == "`python -m pip install matplotlib`"
