"""Whatever a gate sends is a message or refused, and whatever a compiler is called with is read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.gates.gate_program import PROTOCOL
from builddoctor.gates.knobs import JOB_KNOBS, THREAD_KNOBS, settle
from builddoctor.gates.protocol import parse
from builddoctor.toolchain.command_lines import driver_unit, nvcc_unit, parse_sizes, phase_facts

WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *(
                "-o",
                "-c",
                "-E",
                "-quiet",
                "-MMD",
                "-arch",
                "-gencode",
                "--threads",
                "-t",
                "--threads=4",
                "-x",
                "cu",
                "²",
            ),
            *("arch=compute_90,code=[sm_90]", "-arch=sm_100a", "a.cu", "/tmp/tmpxft_0_0-1_a.ptx", "b.o", "c.ii", "--"),
        ]
    ),
)
KINDS = st.sampled_from(["ask", "unit", "front", "start", "end", ""])
KNOBS = st.sampled_from([*JOB_KNOBS, *THREAD_KNOBS])
ARGV = st.lists(WORDS, max_size=12)
TOOLS = st.sampled_from(["cudafe++", "cicc", "ptxas", "nvlink", "collect2", "lto1", "cc1plus", "clang++", ""])


@given(tool=TOOLS, argv=ARGV, sizes=st.dictionaries(st.integers(0, 20), st.integers(0, 2**40), max_size=5))
def test_any_command_line_of_a_phase_is_read(tool: str, argv: list[str], sizes: dict[int, int]) -> None:
    """Kind and size come out, the size never more than all files together."""
    facts = phase_facts(tool, argv, sizes)
    assert 0 <= facts.input_mib <= sum(sizes.values()) / 2**20


@given(argv=ARGV, cwd=st.text(max_size=10))
def test_any_command_line_of_a_driver_is_a_unit(argv: list[str], cwd: str) -> None:
    """Archs look like archs, threads are a number, and what is counted has a source."""
    for unit in (nvcc_unit("u1", argv, cwd), driver_unit("u1", argv, cwd)):
        assert all(arch.startswith("sm_") for arch in unit.archs)
        assert unit.threads >= 0
        assert unit.source in argv or not unit.counted


@given(text=st.text(max_size=60))
def test_any_sizes_are_read(text: str) -> None:
    """Indexes and sizes are never negative."""
    assert all(index >= 0 and size >= 0 for index, size in parse_sizes(text).items())


@given(
    kind=st.sampled_from(["ask", "unit", "front", "start", "end", ""]), fields=st.lists(st.text(max_size=8), max_size=9)
)
@pytest.mark.parametrize("version", [[], [PROTOCOL]])
def test_any_frame_is_a_message_or_refused(version: list[str], kind: str, fields: list[str]) -> None:
    """Nothing but the two errors that a connection expects."""
    try:
        message = parse([kind, *version, *fields])
    except (ValueError, IndexError):
        return
    assert message is None or isinstance(message, msgspec.Struct)


@given(
    values=st.dictionaries(
        st.sampled_from([*JOB_KNOBS, *THREAD_KNOBS]), st.text(max_size=5) | st.integers(-5, 99).map(str)
    ),
    window=st.integers(2, 200),
    cores=st.integers(1, 144),
)
def test_knobs_never_rise_above_the_window_or_fall_below_one(values: dict[str, str], window: int, cores: int) -> None:
    """Whatever the user exported."""
    settings = settle(values, window=window, cores=cores, ignore_caps=False)
    assert 1 <= settings.window <= window
    assert 1 <= settings.threads <= cores
    assert set(settings.exports.values()) <= {str(settings.window), str(settings.threads)}
