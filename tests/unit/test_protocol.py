"""Frames of gates, as typed messages."""

from __future__ import annotations

import pytest

from builddoctor.intercept.gate_program import PROTOCOL
from builddoctor.intercept.protocol import Asked, Ended, Registered, Started, parse


def test_a_phase_asks_with_its_arguments() -> None:
    """The tool is known by its name, its arguments may be empty words."""
    assert parse(
        ["ask", PROTOCOL, "12", "11", "u3", "/cache/o/nvvm/bin/cicc", "/b", "0=7", "1", "-arch", "", "x.ii"]
    ) == Asked(
        gate_pid=12,
        parent_pid=11,
        unit_id="u3",
        tool="cicc",
        cwd="/b",
        sizes="0=7",
        redoable=True,
        argv=("-arch", "", "x.ii"),
    )


@pytest.mark.parametrize("role", ["unit", "front"])
def test_nvcc_and_those_that_run_a_build_register(role: str) -> None:
    """Both tell what their gate cost so far."""
    assert parse([role, PROTOCOL, "12", "/cache/o/bin/nvcc", "/b", "0.012000", "8192", "-c", "a.cu"]) == Registered(
        role=role,
        pid=12,
        name="nvcc",
        shown="/cache/o/bin/nvcc",
        cwd="/b",
        gate_cpu_s=0.012,
        gate_peak_kib=8192,
        argv=("-c", "a.cu"),
    )


def test_a_start_and_an_end_are_told() -> None:
    """A start names the tool's pid, an end its wait status and what it used."""
    assert parse(["start", "13"]) == Started(pid=13)
    assert parse(["end", "9", "204800", "1.500", "0.010000", "8000"]) == Ended(
        status=9, peak_kib=204800, cpu_s=1.5, gate_cpu_s=0.01, gate_peak_kib=8000
    )


@pytest.mark.parametrize(
    "fields",
    [
        ["ask", "999", "12", "11", "", "cicc", "/", ""],
        ["unit", "", "12", "nvcc", "/", "0", "0"],
        ["hello", PROTOCOL],
        ["", PROTOCOL],
    ],
)
def test_another_protocol_is_no_message(fields: list[str]) -> None:
    """A gate of another version, or a stranger, is not talked to."""
    assert parse(fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        [""],
        ["ask"],
        ["ask", PROTOCOL],
        ["ask", PROTOCOL, "x", "11", "", "cicc", "/", ""],
        ["ask", PROTOCOL, "12", "11", "", "cicc", "/"],
        ["unit", PROTOCOL, "12", "nvcc", "/", "soon", "0"],
        ["front", PROTOCOL, "12", "ninja", "/", "0"],
        ["start"],
        ["start", "x"],
        ["end", "0"],
        ["end", "0", "1", "2", "3", "4.5"],
    ],
)
def test_what_no_gate_sends_is_refused(fields: list[str]) -> None:
    """Missing fields and letters for numbers are the two errors that a connection expects."""
    with pytest.raises((ValueError, IndexError)):
        parse(fields)
