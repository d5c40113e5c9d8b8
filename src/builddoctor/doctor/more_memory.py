"""Where more memory comes from, by the kind of place: the next step where a build does not fit.

Covers: WSL2's .wslconfig, Colab, containers of Kubernetes and of GitLab's executor for it, GitHub's own runners, a
Jetson's desktop. Does *not* cover: whether more is needed (``doctor.memory_checks``). Pure: a machine in, words out.
"""

from __future__ import annotations

import math

from builddoctor.core.limits import CGROUPS, LevelKind
from builddoctor.core.machine import Machine

VM_SHARE = 0.75
"""Of Windows's memory, for WSL2: a quarter is left to Windows. A round number."""


def more_memory(machine: Machine) -> str:
    """What to do about a limit that is too small."""
    level = machine.limiting
    found = ""
    if machine.platform.notebook == "colab":
        found = "Runtime > Change runtime type > High-RAM, where the plan has it"
    elif level.kind in CGROUPS:
        found = _of_container(machine)
    elif level.kind is LevelKind.HOST:
        found = _of_machine(machine)
    return found or "a machine or container with more memory"


def _of_container(machine: Machine) -> str:
    if not machine.platform.kubernetes:
        return ""
    if machine.platform.ci == "gitlab":
        return (
            "raise KUBERNETES_MEMORY_LIMIT in the job's variables; the runner's memory_limit_overwrite_max_allowed has "
            "to allow it"
        )
    return "raise resources.limits.memory of this container: other containers of the pod have limits of their own"


def _of_machine(machine: Machine) -> str:
    if machine.platform.wsl_version == 2:
        return wsl_memory(machine)
    if machine.platform.ci == "github-hosted":
        return "a larger runner in `runs-on`"
    if machine.platform.unified_memory == "Jetson":
        return "sudo systemctl isolate multi-user.target    # over ssh: ends the desktop, which holds memory"
    return ""


def wsl_memory(machine: Machine) -> str:
    """Two lines for .wslconfig, with numbers. Windows's own memory cannot be seen from inside: twice the virtual
    machine's is taken, which is so where no .wslconfig says otherwise."""
    windows_gb = 2 * math.ceil(machine.host.total_mib / 1024)
    given_gb = math.floor(VM_SHARE * windows_gb)
    return (
        f"with {windows_gb} GB in Windows: write `memory={given_gb}GB` below a line `[wsl2]` in "
        "%UserProfile%\\.wslconfig, then run `wsl.exe --shutdown` (it ends all shells)"
    )
