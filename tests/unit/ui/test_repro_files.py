"""The script and the README of a folder that reproduces one phase."""

from __future__ import annotations

import shlex

import pytest

from builddoctor.gates.phase_replay import Repro
from builddoctor.ui.repro_files import README, REDUCED_SCRIPT, SCRIPT, readme_text, script_text

ODD = ("a b.ii", "it's", '"q"', "$HOME", "`id`", "a\nb", "-DX=(1;2)", "", "*", "\\", "ü", "-o", "x" * 200)


def made(tool: str = "/cuda/bin/cudafe++", argv: tuple[str, ...] = ("--c++17", "a.ii"), **fields: object) -> Repro:
    known = {
        "what": "cudafe++ of src/a.cu",
        "happened": ("it ended with signal 9 after 2:31, 44.1 GiB at its peak (killed-by-us)",),
        "files": ("a.ii",),
        "versions": ("nvcc 13.0.88", "gcc 12", "glibc 2.36", "x86_64"),
        "peak_mib": 45158.4,
        "wall_s": 151.0,
        "builddoctor": "0.1",
    }
    return Repro(tool=tool, argv=argv, **{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", ["/cuda/bin/ptxas", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "/opt/clang++"])
def test_every_word_reaches_the_program_as_it_was(tool: str) -> None:
    """Blanks, quotes, dollars, new lines and empty words: a shell reads the last command back word by word."""
    script = script_text(made(tool, ODD))
    command = script[script.rindex("exec ") :].replace(" \\\n  ", " ")
    words = shlex.split(command.replace('exec ${LIMIT_S:+timeout "$LIMIT_S"} "$tool"', "", 1))
    assert tuple(words) == ODD


def test_the_script_says_what_was_seen_and_limits_nothing_by_itself() -> None:
    """Versions, peak and time stand at its top; a limit of memory or time is for whoever runs it to set."""
    script = script_text(made())
    assert script.startswith("#!/bin/sh\n# cudafe++ of src/a.cu: 44.1 GiB after 2:31.\n# nvcc 13.0.88; gcc 12;")
    assert 'if [ -n "${LIMIT_MIB:-}" ]; then ulimit -v' in script
    assert max(map(len, script.splitlines())) < 125


@pytest.mark.parametrize(
    ("tool", "asks"),
    [
        ("/cuda/bin/cudafe++", '"${NVCC:-nvcc}" --dryrun'),
        ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "command -v g++-12 || command -v g++"),
        ("/usr/libexec/gcc/x86_64-redhat-linux/13.2.0/cc1", "command -v gcc-13 || command -v gcc"),
        ("/opt/bin/clang++", "tool=${TOOL:-clang++}"),
    ],
)
def test_the_compiler_is_found_where_the_script_runs(tool: str, asks: str) -> None:
    """By name, on PATH, of the same version where there are several: no path of the machine that it came from."""
    script = script_text(made(tool))
    assert asks in script
    assert tool not in script


def test_a_name_cannot_leave_its_comment() -> None:
    """A source called so as to run something stays text."""
    script = script_text(made(what="cicc of a\nrm -rf x\n.cu"))
    assert "\nrm" not in script
    assert "\nrm" not in readme_text(made(what="cicc of a\nrm -rf x\n.cu"))


def test_the_readme_says_what_happens_with_what_and_what_to_mind() -> None:
    """What a vendor asks first, the files, a warning where it takes all memory, and that the input is source."""
    text = readme_text(made(endless=True, notes=("its headers are not here",)), ("it ended with exit code 0",))
    for part in ("signal 9 after 2:31", "nvcc 13.0.88", "glibc 2.36", SCRIPT, "a.ii", "its headers are not here"):
        assert part in text
    assert "LIMIT_MIB=8000 sh repro.sh" in text
    assert "it ended with exit code 0" in text
    assert "your source" in text
    assert "LIMIT_MIB" not in readme_text(made())
    assert README == "README.txt"


def test_a_reduced_input_has_a_script_of_its_own_and_a_place_in_the_readme() -> None:
    """The script names itself, and the README says that this one is to be sent."""
    script = script_text(made(argv=("reduced-a.ii",)), REDUCED_SCRIPT)
    assert "sh reduced.sh" in script
    assert SCRIPT not in script
    text = readme_text(made(), reduced=("reduced-a.ii: 14 lines (543 bytes), of 33766 lines (1,188,765 bytes)",))
    assert "small input (sh reduced.sh)" in text
    assert "  reduced-a.ii: 14 lines (543 bytes)" in text
    assert "reduced" not in readme_text(made())
