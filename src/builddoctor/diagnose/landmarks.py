"""Lines that tell where in a build a log is: a step failed, something failed, all went well. Pure.

Covers: what build tools print themselves. Does *not* cover: why (``diagnose.catalogue``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from builddoctor.diagnose.cleaning import text_of
from builddoctor.diagnose.sieve import starts_from_the_end, starts_of_lines


class Landmark:
    """A kind of line: what it looks like, and the words without which it is none."""

    def __init__(self, words: Iterable[str], *patterns: str) -> None:
        self.words = tuple(word.encode() for word in words)
        self._pattern = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))

    def is_it(self, text: str) -> bool:
        """Of a cleaned line."""
        return self._pattern.search(text) is not None

    def first(self, block: bytes, texts: Collection[bytes]) -> int | None:
        """Where the first such line of a block of whole lines begins; ``texts`` are those that the block holds."""
        begins = [starts_of_lines(block, word) for word in self.words if word in texts]
        return min((start for each in begins if (start := self._one(block, each)) is not None), default=None)

    def last(self, block: bytes, texts: Collection[bytes]) -> int | None:
        """Where the last one begins."""
        ends = [starts_from_the_end(block, word) for word in self.words if word in texts]
        return max((start for each in ends if (start := self._one(block, each)) is not None), default=None)

    def _one(self, block: bytes, starts: Iterator[int]) -> int | None:
        return next((start for start in starts if self.is_it(text_of(block[start : block.index(b"\n", start)]))), None)


def failed_step() -> Landmark:
    """A step of a build tool that failed; the first one is where to look, the others are often only in its way."""
    return Landmark(
        ("FAILED: ", ": *** [", "returned a non-zero code", "did not complete successfully", "died due to signal"),
        r"^FAILED: ",
        r"^(?:[a-z]*make|[\w./-]{1,80}/make)(?:\[\d{1,4}\])?: \*\*\* \[",
        r"^The command '.*' returned a non-zero code: \d",
        r"^(?:ERROR: )?(?:failed to solve: )?process \".*\" did not complete successfully: ",
        r"^nvcc error +: '",
    )


def failure() -> Landmark:
    """Anything that went wrong, whatever it was: after it, a success that was said earlier counts no more."""
    return Landmark(
        [
            *("rror: ", "ERROR: ", "fatal: ", "FATAL: ", "FAILED: ", ": *** [", "Killed", "Traceback (most recent"),
            *(" error ", " fatal ", "exit code ", "exit code: ", "exit status ", "exit status: "),
            *("CMake Error ", "CMake Error:", "a non-zero code: ", " build stopped: "),
        ],
        r"^(?:[A-Za-z]{1,40}\.){0,8}[A-Za-z]{0,40}Error: ",
        r"^(?:ERROR|error|fatal|FATAL): ",
        r": (?:fatal |internal compiler |catastrophic )?error: ",
        r"^(?:nvcc|ptxas|fatbinary|nvlink|cicc|cudafe\+\+) (?:fatal|error) ",
        r"^FAILED: ",
        r": \*\*\* \[.{1,400}\] (?:Error \d|Killed)",
        r"^Traceback \(most recent call last\)",
        r"^Killed\b|: \d+ Killed ",
        r"(?:exit code|exit status):? -?[1-9]",
        r"^CMake Error[ :]",
        r"returned a non-zero code: \d",
        r"^ninja: build stopped: ",
    )


def success() -> Landmark:
    """A build, or a step that ends one, went well."""
    return Landmark(
        [
            *("Successfully built ", "Successfully installed ", "Successfully tagged ", "Build succeeded"),
            *("Finished processing dependencies for ", "BUILD SUCCESS", "] Linking ", "] Built target "),
            *(": no work to do.", "naming to "),
        ],
        r"^Successfully (?:built|installed|tagged) ",
        r"^Finished processing dependencies for ",
        r"^(?:\*\* )?(?:Build succeeded|BUILD SUCCESS)",
        r"^\[(\d{1,6})/\1\] Linking ",
        r"^\[100%\] Built target ",
        r"^ninja: no work to do\.",
        r"^naming to .* done$",
    )


_LAST_EDGE = re.compile(r"^\[(\d{1,6})/(\d{1,6})\] ")


def is_last_edge(text: str) -> bool:
    """ninja's last of so many: only at the end of a log does it say anything."""
    edge = _LAST_EDGE.match(text)
    return edge is not None and edge[1] == edge[2]
