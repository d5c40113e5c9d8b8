"""``builddoctor explain FILE|-``: why something failed, from its log, a kernel log, a traceback, or a trace.

A log is read as a stream of bytes, from a file or from stdin. gzip, bzip2 and xz (and zstandard where Python has it)
are recognised by their first bytes and unpacked on the way.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Protocol, cast

import msgspec
import typer

from builddoctor.cli.naming import find_trace
from builddoctor.cli.output import JsonOption, json_text, page_width, print_data, print_notes, print_page
from builddoctor.cli.trace import judge_now
from builddoctor.core.errors import TextError, TraceError
from builddoctor.core.units import MIB, escaped, shell_word
from builddoctor.core.verdict import Diagnosis, Fix
from builddoctor.diagnose.from_log import Explained, Explainer
from builddoctor.trace.analysis import read_build
from builddoctor.ui.verdict import explain_page, github_annotation, gitlab_report

PATIENCE_S = 2.0
"""of silence on a terminal, while a long log is read"""

TRACE_BEGINS = (b'{"t":"header"', b'{"t": "header"')


CHUNK = 1 << 20
LOOKED_AT = 64 * 1024
"""bytes that decide whether it is a text"""
BINARY_SHARE = 0.1
"""of those, that no text has"""
STDIN = "-"
_TEXT_BYTES = frozenset((*range(0x20, 0x100), *b"\t\n\r\x0b\x0c\b\x1b\a"))
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNPACKERS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", _ZSTD: "zstd"}
_ARCHIVES = {
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x -so"),
    b"LPKSHHRH": ("systemd's journal", "journalctl --no-pager --file"),
}


class ExplainedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What ``explain --json`` prints. ``verdict``, ``confidence``, ``evidence`` and ``fixes`` are relied upon."""

    verdict: str | None
    """null where nothing has to be explained"""
    confidence: str
    evidence: list[str]
    fixes: list[Fix]
    root: str
    """the first error of the innermost layer that failed, as it was printed, with its line; without a verdict the last
    line, where nothing says that it went well"""
    died: str
    why: str
    """the sentence"""
    cause: str
    """the name of the entry in the catalogue of texts (docs/reference/failure-texts.md); empty without one"""
    lines: int
    """of the text; 0 for a trace"""
    file: str


def explain(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="A log of a build or a training, a kernel log, a traceback; .gz, .bz2, .xz as they are. `-` reads "
            "stdin. Or a build, as `trace show` takes it.",
        ),
    ],
    json: JsonOption = False,
    format: Annotated[  # noqa: A002 - the option's name
        Literal["text", "github", "gitlab"],
        typer.Option(
            "--format",
            help="`github`: an annotation, for a step of GitHub Actions after the build's. `gitlab`: a report for "
            "`artifacts:reports:codequality`.",
        ),
    ] = "text",
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 where something failed, 0 where nothing did.")
    ] = False,
) -> None:
    """Explain what failed and why, from any text: verdict, evidence, and fixes, cheapest first.

    \b
    Examples:
      builddoctor explain build.log
      dmesg | builddoctor explain -
      builddoctor explain last --json               # of the last supervised build
    """
    told = _trace(file) or _text(file)
    if json:
        print_data(json_text(_shown(file, told), pretty=True))
    elif format == "github":
        print_data(github_annotation(told.diagnosis))
    elif format == "gitlab":
        print_data(gitlab_report(told.diagnosis, Path.cwd()))
    else:
        name = "stdin" if file == STDIN else escaped(file)
        print_page(explain_page(name, told.diagnosis, lines=told.lines, width=page_width()))
    if exit_code and told.diagnosis.verdict is not None:
        raise typer.Exit(1)


def _trace(file: str) -> Explained | None:
    """A trace by its id, where no file has that name."""
    if file == STDIN or Path(file).exists() or os.sep in file:
        return None
    try:
        return Explained(diagnosis=_judged(find_trace(file)), lines=0)
    except TraceError:
        # Neither: what is said is about the file.
        return None


def _judged(path: Path) -> Diagnosis:
    return judge_now(read_build(path), path)


def _text(file: str) -> Explained:
    with closing(LogInput(file)) as log:
        if log.first.startswith(TRACE_BEGINS):
            if file == STDIN:
                raise TextError(
                    "stdin is a trace of builddoctor, and no log", hint="builddoctor explain FILE   takes one"
                )
            return Explained(diagnosis=_judged(Path(file)), lines=0)
        explainer = Explainer()
        for chunk in _with_progress(log, file):
            explainer.feed(chunk)
        if log.cut_off:
            print_notes([f"builddoctor: {file} is cut off or torn: what could be unpacked of it was read"])
    return explainer.finish()


def _with_progress(chunks: Iterable[bytes], file: str) -> Iterator[bytes]:
    """The same chunks; on a terminal a note now and then where it takes long. Nothing where stderr is no terminal."""
    begun = told = time.monotonic()
    read = 0
    shown = sys.stderr.isatty() and file != STDIN
    for chunk in chunks:
        yield chunk
        read += len(chunk)
        now = time.monotonic()
        if shown and now - told > PATIENCE_S:
            told = now
            print_notes([f"builddoctor: {read / MIB:.0f} MiB read in {now - begun:.0f} s"])


def _shown(file: str, told: Explained) -> ExplainedFile:
    verdict = told.diagnosis
    return ExplainedFile(
        verdict=verdict.verdict,
        confidence=verdict.confidence,
        evidence=verdict.evidence,
        fixes=verdict.fixes,
        root=verdict.root,
        died=verdict.died,
        why=verdict.why,
        cause=verdict.cause,
        lines=told.lines,
        file=file,
    )


class Readable(Protocol):
    """What gives what there is, and does not wait for more."""

    def read1(self, size: int, /) -> bytes: ...


class LogInput:
    """``first``: its first bytes, unpacked; iterate to get all of them. ``cut_off``: it ended within a packed block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cut_off = False
        self._raw = self._open()
        try:
            self._begin(self._raw)
        except TextError:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the file; stdin stays open."""
        self._raw.close()

    def _begin(self, raw: io.BufferedReader) -> None:
        try:
            start = raw.peek(LOOKED_AT)
        except OSError as error:
            raise self._unreadable(error) from error
        self._refuse_archives(start)
        packed = next((kind for mark, kind in _UNPACKERS.items() if start.startswith(mark)), "")
        self._stream: Readable = self._unpacked(packed, raw) if packed else raw
        self._first = self._read(LOOKED_AT)
        self.first = self._first
        self._refuse_binary()

    def __iter__(self) -> Iterator[bytes]:
        data = self._first
        while data:
            yield data
            data = self._read(CHUNK)

    def _open(self) -> io.BufferedReader:
        if self.name == STDIN:
            return io.BufferedReader(cast(io.RawIOBase, _Plain(sys.stdin.fileno())), LOOKED_AT)
        path = Path(self.name)
        try:
            if path.is_dir():
                raise TextError(
                    f"{self.name} is a folder, and a log is a file",
                    hint=f"builddoctor doctor {shell_word(self.name)}   looks at a project",
                )
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return io.BufferedReader(cast(io.RawIOBase, _Plain(descriptor)), LOOKED_AT)

    def _unreadable(self, error: Exception) -> TextError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return TextError(
            f"cannot read {self.name}: {why}", hint="builddoctor explain FILE, or `BUILD 2>&1 | builddoctor explain -`"
        )

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read1(size)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
            # What was unpacked before is all there is.
            self.cut_off = True
            return b""
        except OSError as error:
            if error.errno is None:
                self.cut_off = True
                return b""
            raise self._unreadable(error) from error

    def _unpacked(self, kind: str, raw: io.BufferedReader) -> Readable:
        if kind == "gzip":
            return gzip.GzipFile(fileobj=raw)
        if kind == "bzip2":
            return bz2.BZ2File(raw)
        if kind == "xz":
            return lzma.LZMAFile(raw)
        try:
            return cast(Readable, import_module("compression.zstd").ZstdFile(raw))
        except ImportError:
            raise TextError(f"{self.name} is packed with zstandard", hint=self._pipe("zstd -dc")) from None

    def _refuse_archives(self, start: bytes) -> None:
        for mark, (what, program) in _ARCHIVES.items():
            if start.startswith(mark):
                raise TextError(f"{self.name} is {what}, and no log itself", hint=self._pipe(program))

    def _refuse_binary(self) -> None:
        sample = self.first
        if not sample or sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return
        # A file that was being written when a machine died has zeroes at its end: those alone are no reason.
        seen = sample.rstrip(b"\0")
        odd = sum(byte not in _TEXT_BYTES for byte in seen)
        if not seen or odd > BINARY_SHARE * len(seen):
            raise TextError(f"{self.name} is binary, and no text", hint=self._pipe("strings"))

    def _pipe(self, program: str) -> str:
        return f"{program} {'FILE' if self.name == STDIN else shell_word(self.name)} | builddoctor explain -"


class _Plain(io.FileIO):
    """A descriptor of ours alone; a pipe gives the bytes that it has."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb", closefd=descriptor != 0)
