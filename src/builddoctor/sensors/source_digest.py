"""A digest of one source file: the same file in another folder, on another machine, has the same.

Does *not* cover: what it includes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

MOST_BYTES = 8 * 1024 * 1024
"""More is generated, and changes from build to build; and this is read before the compiler starts."""

DIGITS = 16


def source_digest(path: Path) -> str:
    """The first 16 hexadecimal digits of its sha256; empty for what is no file, too large or not readable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return ""
        with open(fd, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(content).hexdigest()[:DIGITS] if len(content) <= MOST_BYTES else ""
