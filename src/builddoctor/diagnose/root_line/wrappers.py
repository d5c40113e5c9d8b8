"""What only says that something failed, and never why; and where it hands on what the failing program printed. Pure.

Covers: lines of wrappers, by the tool that prints them; the output of a build within that of pip, uv or cargo.
Does *not* cover: the line that says why (``root_line.reasons``), findings that wrap each other
(``root_line.by_findings``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from builddoctor.core.verdict import Finding
from builddoctor.diagnose.log_lines import Quote

WRAPPER = "wrapper-said"
"""the catalogue's entry for wrappers that it can name a way out of"""

PATTERNS: dict[str, tuple[str, ...]] = {
    "any program": (
        r"^[-=*#]{4,}$",
        r"^(?:ERROR|error):$",
        r"^(?:ERROR|[Ee]rror) ?-{1,3}$",
        r"^(?:ERROR|[Ee]rror): [-=*#]{8,}$",
        r"^(?:ERROR|[Ee]rror): (?:[`'\"\u2018]?[\w./+-]{1,80}['\"\u2019]? failed[.!]?|(?:at|in) \S{1,300}:\d{1,6}:?)$",
        r"\.\.\. (?:error|failed)$",
        r"\bwith error code\b",
        r"\berrored (?:out|with)\b",
        r"\bgave error exit status\b",
        r"\bhad non-zero exit status$",
        r"^(?:#{1,4} ?)?std(?:err|out):?$",
        r"\bwas unable to build\b",
        r"^Failed executing: ",
        r"\b[Ff]ailed to (?:build|compile|load)\b.{0,200}\b[Dd]etails:$",
        r"\b[Ss]ee (?:the )?(?:log(?: file)?|compiler (?:error )?output)(?: above)? for (?:more )?details?\b",
        r"\bfailed after \d[\d.:]{0,8} ?\w{1,12}\.?$",
        r"\b[Ff]ailed to finish [\w ]{1,60}$",
    ),
    "pip, uv, scikit-build": (
        r"\bdid not run successfully\b",
        r"\bfinished with status 'error'",
        r"^(?:ERROR: )?Failed (?:to build|building) ",
        r"-generation-failed$|-exited-with-error$",
        r"^(?:error: )?The build backend returned an error",
        r"\bBackend subprocess exited\b",
        r"\berror originates from a sub",
        r"^(?:\*{3} )?CMake (?:build|configuration|install) failed$",
    ),
    "Python, Java: the beginning of a traceback": (
        r"\bTraceback \(most recent call last\):",
        r"^Exception in thread ",
    ),
    "compilers and linkers": (
        r"\bld: final link failed: (?![Nn]o space|[Mm]emory)",
        r"\bdue to previous errors?\b",
        r"^fatbinary fatal {1,4}: Could not open input file",
        r"\bnvcc error while executing ",
        r"^compilation aborted for \S{1,300} \(code \d{1,3}\)$",
    ),
    "autoconf, R's configure": (
        r"^configure:(?:\d{1,6}:)? error: in [`'\u2018]",
        r"^The configuration failed",
        r"^Configuration failed\. This could reflect",
        r"-- ANTICONF ERROR -",
    ),
    "CMake": (
        r"Failed to generate test project build system",
        r"^CMake Error at \S{1,300}\.cu\.o(?:bj)?\.\S{0,60}cmake:\d{1,6} \(message\):|^Error generating(?: file)?$",
        r"\bFunction failed: \w+ \(log file is located at",
    ),
    "cargo": (
        r"^error: (?:[Cc]ould not compile|failed to run custom build command|failed to compile) ",
        r"\bprocess didn't exit successfully\b",
    ),
    "Nix and Guix": (
        r"^error: Cannot build '/nix/store/",
        r"^(?:error: )?(?:cannot build derivation .{1,300} couldn't be built|\d{1,4} dependenc\w{1,3} of derivation ')",
        r"\bbuild of [`'\u2018]?/(?:gnu|nix)/store/\S{1,200} failed$",
    ),
    "Spack": (
        r"\b(?:ProcessError|ChildError): (?:ProcessError: )?Command exited with status \d",
        r"^\d{1,5} errors? found in \w{1,12} log:$",
    ),
    "git": (
        r"\bCould not read from remote repository",
        r"^fatal: clone of '|^Failed to clone '",
    ),
    "Bazel": (
        r"\bduring the fetch of repository '",
        r"^ERROR: \S{1,300}BUILD(?:\.bazel)?:\d{1,6}:\d{1,4}: .{1,300} failed:? \(Exit \d",
    ),
    "Cabal, Mix, Nimble, Go": (
        r"\breturned ExitFailure \d",
        r"^\*\* \(Mix\.Error\) Could not compile",
        r"^Could not build the (?:precompiled )?application for ",
        r"Exception raised during nimble script",
        r"\.go:\d{1,7}: running \"[^\"]{1,80}\": exit status \d",
    ),
    "Conan": (
        r"^ERROR: \S{1,80}: Error in build\(\) method",
        r"^ConanException: Error \d{1,5} while executing ",
    ),
    "MSBuild, Xcode, Flutter": (
        r"\berror MSB30(?:73|30)\b",
        r"^(?:Error|Uncategorized) \(Xcode\): (?:Command \w{1,60} failed with|Linker command failed)",
        r"^Error launching application on ",
    ),
    "Maven, Gradle, Bitbake": (
        r"^\[(?:ERROR|INFO)\] (?:COMPILATION ERROR|Compilation failure|The compilation of \S{1,80} failed at)",
        r"^\* What went wrong: (?:A problem occurred \w{5,15}ing \S{1,30}|Execution failed for task) '.{1,100}'\.$",
        r"^Summary: \d+ tasks? failed",
    ),
    "webpack, gem, xsltproc": (
        r"^ERROR {1,2}Failed to compile with \d",
        r"^ERROR: {1,3}(?:Failed to build gem native extension|Error installing \S{1,80}:$)",
        r"^Processing terminated by xsl:message\b",
    ),
    "R": (
        r"^ERROR: compilation failed for package ",
        r": Failed to install '.{1,80}' from \w+:$",
        r"^ERROR: dependenc(?:y|ies) .{1,300} (?:is|are) not available for package ",
    ),
    "Portage": (
        r"^\* ERROR: \S{1,200} failed \(\w{1,20} phase\):$",
        r"^(?:>>> )?Failed to emerge \S",
        r"^Jobs: \d{1,4} of \d{1,4} complete",
        r"^\* {1,4}(?:emake failed|\(no error message\))$",
    ),
    "DKMS: what it tells its reporter of crashes": (r"^ERROR \(dkms apport\): ",),
    "MacPorts": (
        r"^Error: (?:See \S{1,400} for details|Follow https?://\S{1,200} |Processing of port \S{1,80} failed$)",
    ),
    "Docker": (
        r"^Error: (?:[Cc]ommand failed|Docker build failed with exit code)",
        r"^=> ERROR \[",
    ),
}
"""of each tool, what its lines have"""
_WRAPS = re.compile("|".join(pattern for patterns in PATTERNS.values() for pattern in patterns))

_OPENS = re.compile(
    r"\[\d{1,7} lines? of output\]|Complete output(?: from command .{1,600}| \(\d{1,7} lines?\))?:?|\[std(?:err|out)\]$"
    r"|--- std(?:err|out)$"
)
_CLOSES = re.compile(
    r"\[end of output\]|-{8,}$|hint: |note: |Command \"|\[std(?:err|out)\]$|(?:ERROR: )?Command errored out"
    r"|--- std(?:err|out)$|warning: build failed, waiting"
)
"""around what pip, uv and cargo hand on of a build"""


def wraps(text: str) -> bool:
    """A line that only says that something failed."""
    return _WRAPS.search(text) is not None


def is_wrapper(found: Finding) -> bool:
    """The same of a finding."""
    return found.entry == WRAPPER or wraps(found.text)


def handed_on(lines: Sequence[Quote]) -> list[Quote]:
    """What pip, uv or cargo hands on of a build, where these lines have its beginning: the last that is not empty."""
    inner: list[Quote] = []
    for place, each in enumerate(lines):
        if _OPENS.match(each.text):
            below = lines[place + 1 :]
            end = next((behind for behind, other in enumerate(below) if _CLOSES.match(other.text)), len(below))
            inner = list(below[:end]) or inner
    return inner
