"""Which GPUs this machine has, by ``nvidia-smi``: their compute capabilities.

Does *not* cover: their memory, which is not the host's (``sensors.numa``).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from builddoctor.intercept.captured import run_captured

ANSWERS_WITHIN_S = 20.0
"""The driver may have to be loaded first."""

_CAPABILITY = re.compile(r"^\s*(?P<capability>\d{1,2}\.\d)\s*$", re.MULTILINE)


def visible_archs(env: Mapping[str, str]) -> tuple[str, ...]:
    """``("9.0",)``: each once, in the order of the GPUs; none where there is no GPU, or nobody answers."""
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return ()
    asked = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = run_captured(asked, env=env, timeout_s=ANSWERS_WITHIN_S)
    if answer.status != 0:
        return ()
    return tuple(dict.fromkeys(match["capability"] for match in _CAPABILITY.finditer(answer.output)))
