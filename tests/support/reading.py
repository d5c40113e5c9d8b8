"""What the sensors say in some place: asked by a child process that lives there, as JSON."""

from __future__ import annotations

import sys

import msgspec

from builddoctor.core.limits import MemoryReading

_ASK = """
import os, msgspec
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot
print(msgspec.json.encode(MemorySensor(SystemRoot(), env=os.environ).read(0.0)).decode())
"""


def asking() -> list[str]:
    """The command that prints a reading."""
    return [sys.executable, "-c", _ASK]


def reading_of(output: str) -> MemoryReading:
    """The reading that it printed."""
    return msgspec.json.decode(output.strip().splitlines()[-1], type=MemoryReading)
