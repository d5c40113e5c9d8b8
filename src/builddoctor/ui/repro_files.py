"""The files of a folder that reproduces one phase: ``repro.sh`` and ``README.txt``. Pure.

The script is plain sh, and finds the compiler by itself: nvcc says where its own programs are (``--dryrun``), gcc where
its inner ones are (``-print-prog-name``).
Does *not* cover: inputs (``gates.phase_replay``).
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap

from builddoctor.core.units import escaped, format_clock, format_mib
from builddoctor.gates.phase_replay import Repro

SCRIPT, README = "repro.sh", "README.txt"
REDUCED_SCRIPT = "reduced.sh"
"""Runs the phase on what a reduction left of its input."""

WIDTH = 100
_CUDA_TOOLS = ("cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
_IN_GCC = ("cc1", "cc1plus", "collect2", "lto1")
_GCC_MAJOR = re.compile(r"/(?P<major>\d+)(?:\.[\d.]+)?/[^/]+\Z")

_FIND_NVCC = """\
# nvcc from PATH, or NVCC=/path/to/nvcc; it says itself where its programs are.
settings=$("${NVCC:-nvcc}" --dryrun -c any.cu 2>&1)
setting() { printf '%s\\n' "$settings" | sed -n "s/^#[$] $1=//p" | head -n 1; }
PATH="$(setting CICC_PATH):$(setting PATH):$PATH"
LD_LIBRARY_PATH="$(setting LD_LIBRARY_PATH)${LD_LIBRARY_PATH:-}"
NVVMIR_LIBRARY_DIR=$(setting NVVMIR_LIBRARY_DIR)
export PATH LD_LIBRARY_PATH NVVMIR_LIBRARY_DIR
tool=@NAME@
command -v "$tool" >/dev/null || { echo "no $tool: is nvcc on PATH? NVCC=/path/to/nvcc sh @SCRIPT@" >&2; exit 127; }
"""
_FIND_IN_GCC = """\
# The @DRIVER@ that has it, from PATH, or CXX=/path/to/it; it says itself where its programs are.
[ -n "${CXX:-}" ] || CXX=$(command -v @VERSIONED@ || command -v @DRIVER@)
tool=$("${CXX:-@DRIVER@}" -print-prog-name=@NAME@)
"""


def script_text(repro: Repro, script: str = SCRIPT) -> str:
    """``repro.sh``, or the one for the reduced input."""
    name = os.path.basename(repro.tool)
    lines = [
        "#!/bin/sh",
        *_comment(f"{repro.what}: {_seen(repro)}."),
        *_comment("; ".join(repro.versions)),
        *_comment(f"Made by builddoctor {repro.builddoctor} (trace repro)."),
        "#",
        f"# sh {script}{' ' * 31}without any limit",
        f"# LIMIT_MIB=8000 LIMIT_S=600 sh {script}    in 8000 MiB of address space, 10 minutes at most",
        "",
        'cd "$(dirname "$0")" || exit 1',
        'if [ -n "${LIMIT_MIB:-}" ]; then ulimit -v $((LIMIT_MIB * 1024)) || exit 1; fi',
        "",
    ]
    return "\n".join([*lines, _find(repro, name, script) + _command(repro.argv), ""])


def readme_text(repro: Repro, run: tuple[str, ...] = (), reduced: tuple[str, ...] = ()) -> str:
    """``README.txt``. ``run``: what came of running it here, a line each; ``reduced``: of making its input small."""
    careful = (
        ["It takes what memory there is. Run it with a limit: LIMIT_MIB=8000 sh repro.sh", ""] if repro.endless else []
    )
    body = [
        *_wrapped(repro.what),
        "",
        *_listed("What happens", repro.happened),
        *_listed("Seen with", repro.versions),
        *_listed("When it was run from this folder", run),
        "sh repro.sh runs it again; README and script say how to limit its memory and time.",
        "The exit status is the program's own. To see its peak: /usr/bin/time -v sh repro.sh",
        "",
        *_listed("The same with a small input (sh reduced.sh): it is all that needs to be sent", reduced),
        *careful,
        *_listed("Files", (SCRIPT, *repro.files)),
        *_listed("To know", repro.notes),
        *_wrapped(
            "Before you send it: the input is your source, with the text of every header that it includes, and may "
            "hold paths of your machine."
        ),
    ]
    return "\n".join([*body, ""])


def _find(repro: Repro, name: str, script: str) -> str:
    if name in _CUDA_TOOLS:
        return _FIND_NVCC.replace("@NAME@", name).replace("@SCRIPT@", script)
    if name in _IN_GCC:
        driver = "gcc" if name == "cc1" else "g++"
        found = _GCC_MAJOR.search(repro.tool)
        versioned = f"{driver}-{found['major']}" if found else driver
        text = _FIND_IN_GCC.replace("@NAME@", name).replace("@DRIVER@", driver)
        return text.replace("@VERSIONED@", versioned)
    return f"tool=${{TOOL:-{shlex.quote(name)}}}\n"


def _command(argv: tuple[str, ...]) -> str:
    """The last line: its status is the program's."""
    lines = ['exec ${LIMIT_S:+timeout "$LIMIT_S"} "$tool"']
    for word in map(shlex.quote, argv):
        if len(lines[-1]) + len(word) > WIDTH:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def _seen(repro: Repro) -> str:
    return f"{format_mib(repro.peak_mib)} after {format_clock(repro.wall_s)}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(escaped(text), WIDTH, break_long_words=False)]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        escaped(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(title: str, lines: tuple[str, ...]) -> list[str]:
    if not lines:
        return []
    return [f"{title}:", *(each for line in lines for each in _wrapped(line, "  ")), ""]
