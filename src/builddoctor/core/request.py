"""What the user asked for, as one typed struct, checked before anything starts.

Does *not* cover: the flags themselves (``cli.options``), from which docs/reference/commands.md is generated.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.core.cluster import Fleet


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One supervised build."""

    command: tuple[str, ...]
    """the build command, as typed after ``--``"""
    cwd: str
    """folder that it runs in"""
    title: str = ""
    """what the screen calls this build"""
    archs: tuple[str, ...] = ()
    """device architectures, e.g. ``sm_90``"""
    memory_mib: float | None = None
    """``--memory``: a limit of the user's own, beside the ones that the machine sets"""
    cores: int | None = None
    """``--cores``: compiler phases that may run at once; default: the cores this process may use"""
    toolkit: str = ""
    """``--toolkit``: folder of the CUDA toolkit, its nvcc, or a version such as 13.0"""
    trace: str = ""
    """``--trace``: file to write the trace to"""
    summary: str = ""
    """``--summary``: file to write the summary to, one JSON object"""
    ignore_caps: bool = False
    """``--ignore-caps``: do not take MAX_JOBS and its kin as upper bounds"""
    need_toolkit: bool = False
    """fail when no CUDA compiler is found, instead of supervising host compilers alone"""
    auto_remedy: bool = False
    """``--auto-remedy``: where a compiler alone does not fit, try what leaves the binary as it is"""
    doctor: bool = True
    """look ahead before anything is started; ``--no-doctor`` does not"""
    keep_going: bool = False
    """``--keep-going``: ninja and make go on after a failure, with what does not depend on it"""
    nvcc_by_path: bool = False
    """the build calls the toolkit's nvcc by its own path and runs no CMake: the environment catches its tools"""
    cache: Literal["auto", "ccache", "sccache", "none"] = "none"
    """``--cache``: an object cache in front of the compilers"""
    recipe: str = ""
    """``--recipe``: a recipe by name or file; ``none`` for none"""
    nearest_recipe: bool = False
    """go by the nearest recipe of the project where none was named"""
    strategy: Literal["gated", "staged"] = "gated"
    """``--strategy``: ``staged`` builds without gates, stage by stage"""
    cluster: str = ""
    """``--cluster``: address of other machines that may run phases"""
    cluster_keys: str = ""
    """``--keys``: folder of that cluster's keys; of nodes that the build starts itself: empty for keys of its own"""
    fleet: Fleet | None = None
    """``--cluster``: nodes that the build starts itself"""
    store: str = ""
    """``--store``: folder with results of phases of earlier builds, or the address of one elsewhere"""
    store_keys: str = ""
    """``--keys``: of a store elsewhere; empty where it is a folder"""
    store_mib: float | None = None
    """``--store-size``: what that folder may hold"""
    until_s: float | None = None
    """``--until``: from its start the build may take so long; what cannot end by then is not started"""
    stages: str = ""
    """folder of the stages of a staged build (``ui.staged``)"""
    extra_env: tuple[tuple[str, str], ...] = ()
    """environment that the project needs, set before anything else"""
