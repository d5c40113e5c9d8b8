"""What makes two runs of a phase the same, whatever their temporary files are called. Pure.

Covers: a phase's key, of its program, its command and the content of what it reads; the names in them that differ from
build to build, taken out of texts and put back. Does *not* cover: which phases are self-contained
(``toolchain.travelling``), or where results are kept (``phase_store.folder``).

Three kinds of names differ. *nvcc's temporary files* (``tmpxft_PID_0-COUNTER_NAME``, where a build for several
architectures has one of them in NAME), and the folder they are in. *Files of
the phase itself*, which its command line names. *Paths in line markers* (``# 12 "/path/x.h"``): pip builds in a folder
with a new name each time, a second Python has its headers elsewhere. cudafe++ and cicc write the same bytes but for
these markers, except where a source asks for the name of its file (``__builtin_FILE``, and ``std::source_location`` by
it), or where line numbers are kept for the device (``-lineinfo``). So does gcc, unless sanitizers report where they
are. ``__FILE__`` is a text by then, and part of the key; but gcc reads its source with macros in it
(``-fdirectives-only``), and where ``__FILE__`` still is one, its markers stay.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence

from builddoctor.core.cluster import FOLDER
from builddoctor.toolchain.options import INNER_COMPILERS
from builddoctor.toolchain.travelling import TEXTS, Travelling

FORMAT = "builddoctor phase 1"
"""In each key: other rules make other keys."""

_TEMPORARY = re.compile(rb"(tmpxft_[0-9a-f]{8}_[0-9a-f]{8})([-_])(\d+)_([\w.+-]*)")
_MARKER = re.compile(rb'^(# \d+ ")(/[^"\n]*)(?=")', re.MULTILINE)
_HIDDEN = re.compile(rb"\0([tcnfp])(\d+)\0")
_ASKS_FOR_ITS_NAME = (b"__builtin_FILE", b"__builtin_source_location")
_ASKS_BY_MACRO = (*_ASKS_FOR_ITS_NAME, b"__FILE__", b"__BASE_FILE__")
_ASKS_FOR_THE_TIME = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
_LINE_NUMBERS = ("--generate-line-info", "-generate-line-info", "-lineinfo", "-fsanitize")
_STRINGS = re.compile(rb"^\s*\.(string|ascii)\b[^\n]*tmpxft_", re.MULTILINE)
"""A name as data: a longer one would need more room."""


class Names:
    """Names of one build, in the order in which they are met: the next build meets its own in the same one."""

    def __init__(self, folders: Sequence[str]) -> None:
        """``folders``: those that temporary files of the phase are in."""
        self._tables: dict[bytes, dict[bytes, int]] = {kind: {} for kind in (b"t", b"c", b"n", b"f", b"p")}
        for folder in folders:
            self._number(b"f", os.fsencode(folder) + b"/", learn=True)

    def hide(self, text: bytes, *, markers: bool) -> bytes:
        """A text that is read, without them; new ones are remembered."""
        return self._hidden(text, markers=markers, learn=True)

    def hide_known(self, text: bytes, *, markers: bool) -> bytes | None:
        """A text that was written; None where it has one that nothing had that was read."""
        if b"\0" in text:
            return None
        try:
            return self._hidden(text, markers=markers, learn=False)
        except KeyError:
            return None

    def show(self, text: bytes) -> bytes:
        """With the names of this build. Raises KeyError for one that it has not."""
        shown = {kind: list(table) for kind, table in self._tables.items()}

        def name(match: re.Match[bytes]) -> bytes:
            of_kind, place = shown[match[1]], int(match[2])
            if place >= len(of_kind):
                raise KeyError(match[0])
            return of_kind[place]

        return _HIDDEN.sub(name, text)

    def _hidden(self, text: bytes, *, markers: bool, learn: bool) -> bytes:
        if b"tmpxft_" in text:
            for folder in self._tables[b"f"]:
                text = text.replace(folder + b"tmpxft_", self._token(b"f", folder) + b"tmpxft_")
            text = _TEMPORARY.sub(lambda match: self._without_names(match, learn=learn), text)
        if not markers:
            return text
        paths = self._tables[b"p"]
        return _MARKER.sub(
            lambda match: (
                match[1] + self._number(b"p", match[2], learn=True) if learn or match[2] in paths else match[0]
            ),
            text,
        )

    def _without_names(self, match: re.Match[bytes], *, learn: bool) -> bytes:
        """A temporary file's: the run of nvcc, its counter, and what follows, which may name an architecture."""
        run, counter = self._number(b"t", match[1], learn=learn), self._number(b"c", match[3], learn=learn)
        # What has no suffix is no file.
        name = self._number(b"n", match[4], learn=learn) if b"." in match[4] else match[4]
        return run + match[2] + counter + b"_" + name

    def hide_paths(self, printed: bytes) -> bytes:
        """What a compiler said, in which a path may stand anywhere."""
        for path in sorted(self._tables[b"p"], key=len, reverse=True):
            printed = printed.replace(path, self._token(b"p", path))
        return printed

    def _number(self, kind: bytes, name: bytes, *, learn: bool) -> bytes:
        if learn:
            self._tables[kind].setdefault(name, len(self._tables[kind]))
        return self._token(kind, name)

    def _token(self, kind: bytes, name: bytes) -> bytes:
        return b"\0%s%d\0" % (kind, self._tables[kind][name])


class Likeness:
    """One phase that is about to run: its key, and its names."""

    def __init__(self, phase: Travelling, program: str, inputs: Sequence[bytes]) -> None:
        """``program``: its sha256. ``inputs``: what is in the files that it reads, in their order."""
        self._phase = phase
        files = [*phase.inputs, *phase.outputs]
        folders = {os.path.dirname(file.path) for file in files if file.name.startswith("tmpxft_")}
        self._names = Names(sorted(folders))
        for file in files:
            # What it writes may name itself.
            self._names.hide(os.fsencode(file.name), markers=False)
        by_gcc = phase.tool in INNER_COMPILERS
        asks = _ASKS_BY_MACRO if by_gcc else _ASKS_FOR_ITS_NAME
        self._markers = not any(word.startswith(_LINE_NUMBERS) for word in phase.words) and not any(
            word in content for content in inputs for word in asks
        )
        own = {f"{FOLDER}/{file.name}": f"{FOLDER}{place}" for place, file in enumerate(files)}
        # What is no file of the phase, and in its folder all the same, is written and never read.
        words = "\0".join(own.get(word, FOLDER if word.startswith(f"{FOLDER}/") else word) for word in phase.words)
        digest = hashlib.sha256("\0".join((FORMAT, phase.tool, program, "")).encode())
        digest.update(self._names.hide(os.fsencode(words), markers=False))
        for content in inputs:
            hidden = self._names.hide(content, markers=self._markers)
            digest.update(b"\0\0%d\0" % len(hidden))
            digest.update(hidden)
        self.key = digest.hexdigest()
        self.may_be_kept = not by_gcc or not any(word in content for content in inputs for word in _ASKS_FOR_THE_TIME)
        """it does the same at any time"""

    def hide(self, place: int, content: bytes) -> bytes | None:
        """One of its outputs, by its place, as it is kept; None where it is this build's alone."""
        name = self._phase.outputs[place].name
        if not name.endswith((*TEXTS, ".s")):
            return None if b"tmpxft_" in content else content
        if _STRINGS.search(content) is not None:
            return None
        return self._names.hide_known(content, markers=self._markers)

    def show(self, place: int, content: bytes) -> bytes:
        """As it would have been written here. Raises KeyError where it names what this phase does not."""
        return self._names.show(content) if self._phase.outputs[place].name.endswith((*TEXTS, ".s")) else content

    def hide_printed(self, printed: bytes) -> bytes | None:
        """What it said, as it is kept; None where that is this build's alone."""
        hidden = self._names.hide_known(printed, markers=False)
        return None if hidden is None else self._names.hide_paths(hidden)

    def show_printed(self, printed: bytes) -> bytes:
        """As it would have been said here. Raises KeyError where it names what this phase does not."""
        return self._names.show(printed)
