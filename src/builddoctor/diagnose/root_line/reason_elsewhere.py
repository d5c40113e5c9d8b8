"""Where the root line only says that something failed: the reason is not in what was copied. Pure.

Covers: which lines say no more than that, the file of a log that a tool names beside it, and how that tool is made to
say more.
Does *not* cover: finding the root line (``root_line.unknown_cause``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from builddoctor.core.units import shell_word
from builddoctor.core.verdict import Finding, Fix
from builddoctor.diagnose.log_scanner import Reading
from builddoctor.diagnose.root_line.kept_lines import KeptLines
from builddoctor.diagnose.root_line.line_words import BARE
from builddoctor.diagnose.root_line.wrappers import is_wrapper

LINES_NEXT = 24
"""from the root line, in which a tool names the file that holds the reason: Portage prints its own stack before that"""

_ONLY_FAILED = re.compile(
    r"(?:[\w./-]{0,100}make|scons)(?:\[\d{1,4}\])?: \*\*\* \[.{1,400}\] \w{3,12} -?\d{1,5}$|^ninja: build stopped"
    r"|^(?:collect2: error: )?ld returned \d|^(?:FAILED|Failed)\b[: ]|^\S{0,200}: recipe for target .{1,200} failed$"
    r"|^\d{1,6} (?:catastrophic )?errors? (?:generated|detected)\b|\btoo many errors emitted\b|^compilation terminated"
    r"|\bCalledProcessError: Command |^(?:RuntimeError: )?Error compiling objects for extension"
    r"|^Command \S{1,80} failed with a nonzero exit code|^\d{1,4} packages? failed: "
    r"|\b(?:failed|exited|ended|returned)(?: \w{1,12}){0,3} (?:a )?(?:nonzero|non-zero)? ?(?:exit |error |return )?"
    r"(?:code|status|value):? ?'?(?:\d{1,5}|0x\w{1,8})\b.{0,20}$"
    r"|\bexit(?:ed with)?:? (?:code:? )?\d{1,3}\.?$|^error: failed-wheel-build|^(?:ELIFECYCLE|canceled)\b"
    r"|^Error! Bad return status for module|\bBuild step for \S{1,80} failed: \d|\bfatal error U1077\b"
    r"|^-- Configuring incomplete, errors occurred|^CMake (?:Generate|Configure) step failed"
    r"|\berror MSB6006\b|\bJob failed: exit |\bmarked build as failure$|\bexec returned: \d{1,3}$"
    r"|\blinker command failed with exit code \d{1,3}\b"
)
"""Build tools and what starts compilers, by their own words. Not among the wrappers: a better line is looked for above
a wrapper, and here there may be none."""

_FILE = r"(?P<file>(?:~|[A-Za-z]:)?[\w@%+=,.~/\\-]{0,300}?[\w@%+=,~-]"
_LOG_FILES = (
    rf"{_FILE}(?:\.log(?:\.do_\w{{1,40}}\.\d{{1,9}})?|-out\.txt|ConfigureLog\.yaml|crashdump|\.drv\.gz))(?![\w/\\])"
)
_NAMES_LOG = re.compile(
    rf"(?i:\b(?:see|consult|check|look in|look at|located at|log file|logfile|logs? (?:for|of)|log is|build log"
    rf"|can be found (?:in|here)|details)\b).{{0,120}}?{_LOG_FILES}"
)
_ANNOUNCES = re.compile(r"(?i)\b(?:log|file)\b.{0,60}\b(?:can be found|here|in|at)\b.{0,12}:$")
_PATH_ALONE = re.compile(rf"[\s'\"*]*{_LOG_FILES}['\".]*$")
_NIX_LOG = re.compile(r"\bnix log (?P<file>/nix/store/[\w.+-]{1,200}\.drv)")
_CONFIGURES_OWN = re.compile(r"(?:config|CMakeError)\.log$|ConfigureLog\.yaml$")
"""logs of many tests of which most may fail: only their end matters"""

_OF_SUCCESS = "CMakeOutput.log"
"""what was tried out and worked"""
_FROM_ANYWHERE = re.compile(r"[/~]|[A-Za-z]:")
_OF_CMAKE = re.compile(r"-- Configuring incomplete|CMake \w{1,12} step failed")

_KEEP = "2>&1 | tee build.log; builddoctor explain build.log"

_PIPS = re.compile(
    r"setup\.py|pip |[Ff]ailed (?:to build|building) (?:installable )?wheel|did not run successfully|bdist_wheel"
    r"|compiling objects for extension|failed-wheel-build|CalledProcessError: Command '\['(?:ninja|\S{0,200}cmake)'"
)
_WHEEL_OF = re.compile(r"[Ff]ailed (?:to build|building) wheels? for (?P<package>[A-Za-z][\w.-]{0,80})")

_SAYS_MORE: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"^ninja: |^FAILED: "),
        "ninja prints what a step said right below the line FAILED: of it. Copy that, or run ninja again and keep all",
        f"ninja {_KEEP}",
    ),
    (
        re.compile(r"make(?:\[\d{1,4}\])?: \*\*\* |recipe for target"),
        "make says only which step failed. With one job, what the compiler said of it stands right above make's line",
        f"make -j1 {_KEEP}",
    ),
    (
        _OF_CMAKE,
        "what cmake stopped at stands above, as `CMake Error at`, and mostly not in its log files: keep all it prints",
        f"cmake -S . -B build {_KEEP}",
    ),
    (
        re.compile(r"^error: could not compile|custom build command|cargo"),
        "cargo prints the compiler's errors, and what a build script said, above that line: keep all of it",
        f"cargo build -vv {_KEEP}",
    ),
    (
        re.compile(r"^ERROR: failed to solve|/bin/sh -c |returned a non-zero code"),
        "docker tells only that a step failed, and shows a part of what it said. Let it print all",
        f"docker build --progress=plain --no-cache . {_KEEP}",
    ),
)
_UVS = re.compile(r"The build backend returned an error|^hint: This usually indicates a problem with the package")
_OF_BUILD = re.compile(r"\bBackend subprocess exited when trying to invoke \w")
_PRINTED = (
    "what the compiler said stands above what is here, below a line that begins with FAILED: copy that, or run it"
    " again and keep all"
)
_ANY = "the reason stands above what is here. Run it again, with one job where it has several, and keep all it prints"


def only_failed(found: Finding) -> bool:
    """The line says that something failed, and nothing of why."""
    return is_wrapper(found) or BARE.search(found.text) is not None or _ONLY_FAILED.search(found.text) is not None


def fixes_of_reason(root: Finding, reading: Reading) -> list[Fix]:
    """How to come by the reason: the file that holds it, and how what failed is made to say more, where it did not
    say enough. Empty where neither is known."""
    # One that can be opened from anywhere is better than a name, and one that is named near by than one further off.
    found = sorted(_files(root, reading), key=lambda each: (not _FROM_ANYWHERE.match(each[1]), each[0]))
    files = [file for _, file in found]
    nothing_said = only_failed(root)
    named = [_fix_of_file(file, "the reason" if nothing_said else "more of it") for file in files[:1]]
    again = [_said_again(root, reading)] if nothing_said else []
    return [*again, *named] if _OF_CMAKE.match(root.text) else [*named, *again]


def _files(root: Finding, reading: Reading) -> Iterator[tuple[int, str]]:
    """How far off, and which."""
    kept = KeptLines(reading)
    announced = False
    for each in kept.all:
        if abs(each.line - root.line) > LINES_NEXT:
            continue
        found = _NIX_LOG.search(each.text) or _NAMES_LOG.search(each.text)
        found = found or (_PATH_ALONE.match(each.text) if announced else None)
        if found is not None and not found["file"].endswith(_OF_SUCCESS):
            yield abs(each.line - root.line), found["file"]
        announced = _ANNOUNCES.search(each.text) is not None


def _fix_of_file(file: str, what: str) -> Fix:
    text = f"{what} stands in {file}, which the log names"
    if file.endswith(".drv"):
        return Fix(text=text, command=f"nix log {shell_word(file)} | builddoctor explain -")
    if file.endswith(".gz"):
        return Fix(text=text, command=f"zcat {shell_word(file)} | builddoctor explain -")
    if _CONFIGURES_OWN.search(file):
        return Fix(text=f"{text}: near its end", command=f"tail -n 60 {shell_word(file)}")
    return Fix(text=text, command=f"builddoctor explain {shell_word(file)}")


def _said_again(root: Finding, reading: Reading) -> Fix:
    texts = [root.text, *(each.text for each in KeptLines(reading).last)]
    for says, text, command in _SAYS_MORE:
        if says.search(root.text):
            return Fix(text=text, command=command)
    if any(_OF_BUILD.search(each) for each in texts):
        return Fix(text=_PRINTED, command=f"python -m build --wheel {_KEEP}")
    if any(_UVS.search(each) for each in texts):
        return Fix(text=_PRINTED, command=f"uv pip install -v . {_KEEP}")
    if any(_PIPS.search(each) for each in texts):
        package = next((found["package"] for each in texts if (found := _WHEEL_OF.search(each))), "")
        what = shell_word(package) if package else "."
        said = "pip hides what a build prints, unless it is asked with -v: run the same command with it, and keep all"
        return Fix(text=said, command=f"pip install -v {what} {_KEEP}")
    return Fix(text=_ANY, command=f"COMMAND {_KEEP}")
