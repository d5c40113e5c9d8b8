"""One line of a log as the tool itself wrote it: bytes to text.

Covers: colours and other sequences of terminals, progress bars (what was written last counts), CRLF, bytes of another
encoding, what CI, containers, schedulers, journals and pip put in front, credentials.
Does *not* cover: cutting a stream into lines (``diagnose.lines``).
"""

from __future__ import annotations

import re

from builddoctor.diagnose.lines import LONGEST_LINE
from builddoctor.trace.masking_lines import mask_line
from builddoctor.units import one_line

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[0-~])")
"""ECMA-48: control sequences, strings (titles, links, BuildKite's times; a bell may end them), others."""

_PASTED = re.compile(rb"\[(?:\d{1,2}(?:;\d{1,3}){0,4}m(?:\[K)?|m\[K)")
"""colours that lost their escape character when a log was pasted"""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]+")

_ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_PREFIXES = (
    rf"{_ISO_TIME} [\w.-]{{1,64}} (?:kernel|[\w./@-]{{1,64}}\[\d{{1,8}}\]): ",
    # GitHub Actions, Azure, Kubernetes, docker logs -t; GitLab's stream mark and containerd's after it
    rf"{_ISO_TIME}(?: \d\d[OE]\+?| std(?:out|err) [FP])?(?: |$)",
    # gh run view --log: the job, the step, the time
    r"[^\t]{1,120}\t[^\t]{1,120}\t(?=\ufeff?\d{4}-\d\d-\d\dT)",
    r"##\[[a-z]{1,12}\]",
    r"::(?:error|warning|notice|debug)(?: [^:]{0,300})?::",
    # BuildKit: the step, the seconds; its summary of a failed step leaves out the step
    r"#\d{1,4} (?:\d{1,6}\.\d{1,4} )?",
    r"\d{1,6}\.\d{3,4} ",
    r"=> => # ",
    r"\[Container\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? ",
    # docker compose; a number instead of a name would be a line of source that gcc shows
    r"[A-Za-z][\w.-]{0,60} {1,20}\| ",
    # Jenkins, dmesg -T, and others: something with a time of day
    r"\[[^\]\[]{0,40}\d\d:\d\d:\d\d[^\]\[]{0,30}\]:? ?",
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})? ",
    # the kernel's log, with its level from a console
    r"(?:<\d{1,3}>)?\[ {0,8}\d{1,8}\.\d{6}\](?:\[ *[TC]\d{1,8}\])? ",
    # journalctl and syslog: time, host, program
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,8}\])?: ",
    r"(?:[\w.-]{1,64} )?(?:kernel|earlyoom\[\d{1,8}\]|systemd-oomd\[\d{1,8}\]|systemd\[\d{1,8}\]): ",
    # srun --label, mpirun --tag-output, torchrun, ray
    r"\d{1,6}: ",
    r"\[[A-Za-z][\w.-]{0,60}\]: ?",
    r"\[\d{1,6},\d{1,6}\]<std(?:out|err)>: ?",
    r"\((?:[\w.]{1,60} )?pid=\d{1,8}(?:, ip=[\d.]{1,15})?\) ",
    # pip's and rattler's trees, quoted text
    "(?:[│┆╰╭├└─┌>\u00d7╯╮▶|] {0,4})+",
)
_PREFIX = re.compile("|".join(_PREFIXES))
MOST_PREFIXES = 6


def without_sequences(text: bytes) -> bytes:
    """What a terminal would show as letters, of any number of lines."""
    text = _SEQUENCE.sub(b"", text) if b"\x1b" in text else text
    return _PASTED.sub(b"", text)


def text_of(line: bytes) -> str:
    """One line as the tool itself wrote it, to be searched. It may hold credentials."""
    line = without_sequences(line).rstrip(b"\r\n").rpartition(b"\r")[2][:LONGEST_LINE]
    text = line.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = _tabs_kept(text)
    text = text.strip()
    for _ in range(MOST_PREFIXES):
        prefix = _PREFIX.match(text)
        if prefix is None or not prefix.end():
            break
        text = text[prefix.end() :].lstrip()
    return text.replace("\t", " ")


def clean(line: bytes) -> str:
    """One line to be shown: nothing in it moves the cursor, and what looks like a credential is masked."""
    return mask_line(one_line(text_of(line)))


def _tabs_kept(text: str) -> str:
    return "\t".join(_CONTROL.sub(" ", part) for part in text.split("\t"))
