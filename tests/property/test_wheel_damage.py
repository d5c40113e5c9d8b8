"""Wheels with any bytes changed: refused in our own words, or read; never a crash, never a file outside."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.errors import PackageDamagedError
from builddoctor.toolkits.layout import place_of
from builddoctor.toolkits.wheels import read_wheel, write_entries
from support.examples import examples
from support.made_wheels import make_wheel

FILES: dict[str, bytes | str] = {
    "nvidia/cu13/include/x.h": "int x;\n" * 50,
    "nvidia/cu13/lib/libx.so.1": bytes(range(256)) * 8,
}
CHANGE = st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8))
PARTS = ["nvidia", "cu13", "lib", "include", "bin", "x.dist-info", "licenses", "a", ".b"]


@examples(300)
@given(changes=st.lists(CHANGE, min_size=1, max_size=6), kept=st.floats(0.5, 1))
def test_a_damaged_wheel_is_refused_or_read(changes: list[tuple[float, bytes]], kept: float) -> None:
    """Bytes changed anywhere, the end cut off: what is written then is what RECORD says."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        path = make_wheel(home / "in", "nvidia-x", "1.0", FILES)
        raw = bytearray(path.read_bytes())
        for where, data in changes:
            at = int(where * len(raw))
            raw[at : at + len(data)] = data
        path.write_bytes(raw[: int(len(raw) * kept)] if kept < 0.9 else raw)
        try:
            wheel = read_wheel(path)
            targets = {entry.name: home / "out" / f"{number}" for number, entry in enumerate(wheel.entries)}
            write_entries(wheel, targets)
        except PackageDamagedError:
            return
        for entry in wheel.entries:
            assert targets[entry.name].stat().st_size == entry.size


@given(parts=st.lists(st.sampled_from(PARTS), min_size=1))
def test_every_place_is_inside(parts: list[str]) -> None:
    """Whatever a wheel calls its files."""
    place = place_of("/".join(parts), "nvidia-x", "x86_64-linux")
    assert place is None or (not place.is_absolute() and ".." not in place.parts and len(place.parts) >= 2)
