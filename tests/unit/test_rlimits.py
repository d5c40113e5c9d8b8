"""Limits on single processes."""

from __future__ import annotations

import pytest

from builddoctor.sensors.rlimits import process_caps
from unit.trees import GIB, TextRoot

HEAD = "Limit                     Soft Limit           Hard Limit           Units     \n"


def limits(data: str = "unlimited", space: str = "unlimited") -> TextRoot:
    """/proc/self/limits as the kernel prints it."""
    text = (
        f"{HEAD}Max data size             {data:<20} unlimited            bytes     \n"
        f"Max resident set          1048576              1048576              bytes     \n"
        f"Max address space         {space:<20} unlimited            bytes     \n"
    )
    return TextRoot({"/proc/self/limits": text})


def test_unlimited_processes_have_no_caps() -> None:
    """RLIMIT_RSS is set in the fixture and has no effect on Linux: it is not one."""
    assert process_caps(limits()) == ()


@pytest.mark.trap(38)
def test_caps_are_named_and_in_mib() -> None:
    """They are per process, and no level of memory."""
    caps = process_caps(limits(data=str(2 * GIB), space=str(GIB)))
    assert [(cap.name, cap.limit_mib) for cap in caps] == [("RLIMIT_DATA", 2048), ("RLIMIT_AS", 1024)]


@pytest.mark.parametrize("text", [None, "", "Max address space", "Max address space  lots many bytes", "\x00\n"])
def test_odd_files_are_no_caps(text: str | None) -> None:
    """Nor an error."""
    assert process_caps(TextRoot({"/proc/self/limits": text})) == ()
