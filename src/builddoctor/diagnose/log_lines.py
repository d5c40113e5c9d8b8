"""A log as lines: a stream cut into whole lines, each line as its tool wrote it, and a fast search for many words.

Covers: chunks of any size, lines without an end, UTF-16 (what PowerShell writes) by its byte order mark; colours and
other sequences of terminals, progress bars (what was written last counts), CRLF, bytes of another encoding, what CI,
containers, schedulers, journals and pip put in front, messages in lines of JSON, credentials.
Does *not* cover: what a line means (``diagnose.log_scanner``, ``diagnose.log_facts``). Pure.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

import msgspec

from builddoctor.core.units import one_line
from builddoctor.trace.masking import mask_line

BLOCK = 1 << 20
"""bytes searched at once"""

LONGEST_LINE = 64 * 1024
"""bytes of a line that are looked at. A link line of a big project has some 30 KB; what is longer is data"""


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A number, and the line that says it."""

    value: int
    quote: Quote


class Lines:
    """Gives back whole lines as soon as they are whole, the same whatever the chunks were."""

    def __init__(self) -> None:
        self._head = b""
        self._began = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pending = b""
        self._was_cut = False

    def feed(self, data: bytes) -> bytes:
        """What became whole with these bytes: lines that end with a line feed, none longer than LONGEST_LINE."""
        if not self._began:
            self._head += data
            if len(self._head) < len(codecs.BOM_UTF8):
                return b""
            data = self._begin()
        return self._whole(self._as_utf8(data, last=False))

    def rest(self) -> bytes:
        """The last line where it has no end; empty otherwise. Nothing can be fed after it."""
        data = b"" if self._began else self._begin()
        whole = self._whole(self._as_utf8(data, last=True))
        last, self._pending = self._pending, b""
        return whole + (_shortened(last) if self._was_cut or len(last) > LONGEST_LINE else last)

    def _begin(self) -> bytes:
        data, self._head, self._began = self._head, b"", True
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        return data.removeprefix(codecs.BOM_UTF8)

    def _as_utf8(self, data: bytes, *, last: bool) -> bytes:
        if self._decoder is None:
            return data
        return self._decoder.decode(data, last).encode("utf-8", "replace")

    def _whole(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(self._pending + data)
            return b""
        whole = self._pending + data[:end]
        if self._was_cut:
            first, _, others = whole.partition(b"\n")
            whole = _shortened(first) + b"\n" + others
            self._was_cut = False
        self._pending = b""
        self._keep(data[end:])
        return _all_shortened(whole)

    def _keep(self, pending: bytes) -> None:
        """Remember a line that has no end yet: never much more of it than counts."""
        if len(pending) > LONGEST_LINE:
            self._was_cut = True
            returns = b"\r" if pending.endswith(b"\r") else b""
            pending = _shortened(pending) + returns
        self._pending = pending


class Blocks:
    """Whole lines in blocks of about one size, whatever the chunks were, without the sequences of terminals.

    What stands near a line is in the same block in every reading. A message is taken out of its line of JSON. What
    some program put in front of every line is taken off by what the lines have in common; ``text_of`` takes off what is
    known.
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The next bytes; blocks that became whole."""
        if self._waiting_bytes + len(data) < BLOCK:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            return
        data = b"".join((*self._waiting, data))
        whole = len(data) - len(data) % BLOCK
        self._waiting, self._waiting_bytes = [data[whole:]], len(data) - whole
        for start in range(0, whole, BLOCK):
            if block := self._lines.feed(data[start : start + BLOCK]):
                yield unwrapped(without_sequences(block))

    def rest(self) -> Iterator[bytes]:
        """What is left; a last line without an end gets one. Nothing can be fed after it."""
        last = self._lines.feed(b"".join(self._waiting))
        rest = self._lines.rest()
        for block in (last, rest if not rest or rest.endswith(b"\n") else rest + b"\n"):
            if block:
                yield unwrapped(without_sequences(block))


def _all_shortened(whole: bytes) -> bytes:
    """The same lines, those that are too long made shorter. Looks at few bytes where none is."""
    at, done, parts = 0, 0, []
    while at + LONGEST_LINE < len(whole):
        end = whole.rfind(b"\n", at, at + LONGEST_LINE + 1)
        if end < 0:
            end = whole.index(b"\n", at)
            parts += [whole[done:at], _shortened(whole[at:end])]
            done = end
        at = end + 1
    return b"".join([*parts, whole[done:]]) if parts else whole


def _shortened(line: bytes) -> bytes:
    """The beginning of what a progress bar wrote last."""
    return line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_LINE]


# -- one line --------------------------------------------------------------------------------------------------------


_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[0-~])")
"""ECMA-48: control sequences, strings (titles, links, BuildKite's times; a bell may end them), others."""

_PASTED = re.compile(rb"\[(?:\d{1,2}(?:;\d{1,3}){0,4}m(?:\[K)?|m\[K)")
"""colours that lost their escape character when a log was pasted"""
_PASTED_LINK = re.compile(rb"\]?8;;(?:https://gcc\.gnu\.org/\S{1,160}?(?=-[fWm])|(?=\]))")
"""and gcc's links to its options"""

_ENTITIES = {
    b"&quot;": b'"',
    b"&#34;": b'"',
    b"&#39;": b"'",
    b"&#x27;": b"'",
    b"&apos;": b"'",
    b"&lt;": b"<",
    b"&gt;": b">",
    b"&amp;": b"&",
    b"&nbsp;": b" ",
}
"""of HTML, as a log has them that was saved from a page"""
_ENTITY = re.compile(b"|".join(_ENTITIES))

_QUOTED = {"\u00e2\u20ac\u02dc": "\u2018", "\u00e2\u20ac\u2122": "\u2019", "\u00e2\u20ac\u0153": "\u201c"}
_QUOTES = re.compile("|".join(_QUOTED))
"""gcc's quotes in UTF-8 that were read as Windows' own letters when a log was pasted"""

_BOLD = re.compile(r"^\*\*([^*].*[^*])\*\*$|\*\*(?=(?:fatal )?error\b)|^\*\*(?=[\w./])|(?<=[\]\d])\*\*$")
"""Markdown, as people mark a line, or some from their first to their last, in what they paste"""
_CODE = re.compile(r"^`([^`]+)`$")
"""and as they quote a single one"""

TYPED_AT = (
    r"(?:\([\w ./~-]{1,40}\) ?)?"
    r"(?:(?:PS )?[A-Za-z]:\\[^<>|]{0,200}>|\[?[\w.-]{1,40}@[\w.-]{1,60}[: ][^$#%>]{0,150}[$#%>])"
)
"""a prompt of a shell that a person had, and no short one, which CI prints too"""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]+")

_ISO_TIME = r"\d{4}(?:-\d\d-\d\d|/\d\d/\d\d)[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_PREFIXES = (
    rf"{_ISO_TIME} [\w.-]{{1,64}} (?:kernel|[\w./@-]{{1,64}}\[\d{{1,8}}\]): ",
    # GitHub Actions, Azure, Kubernetes, docker logs -t; GitLab's stream mark and containerd's after it
    rf"{_ISO_TIME}(?: \d\d[OE]\+?| std(?:out|err) [FP])?(?::? |$)",
    # gh run view --log: the job, the step, the time
    r"[^\t]{1,120}\t[^\t]{1,120}\t(?=\ufeff?\d{4}-\d\d-\d\dT)",
    # Python's logging as most set it up, behind the time; and as it is where nobody did
    r"- (?:[\w./-]{1,60} - )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ",
    r"(?:DEBUG|INFO):[\w.]{1,60}:",
    r"##\[[a-z]{1,12}\]",
    r"::(?:error|warning|notice|debug)(?: [^:]{0,300})?::",
    # Mozilla's mach: minutes, seconds
    r"\d{1,3}:\d\d\.\d\d (?= {0,12}\S)",
    # MacPorts
    r":(?:info|error|debug|msg|notice|warn):\w{1,20} ",
    # opam, of what a tool said
    r"# (?=(?:(?:/usr)?/bin/)?(?:ba|da)?sh: |(?:cc|gcc|ld|make|ocaml\w{0,12}): )",
    # BuildKit: the step, the seconds; its summary of a failed step leaves out the step
    r"#\d{1,4} (?:\d{1,6}\.\d{1,4}(?: |$))?",
    # four digits in all, and more from a thousand seconds on
    r"(?:\d\.\d{3}|\d\d\.\d\d|\d{3,6}\.\d|\d{1,6}\.\d{3,4}) ",
    # TheRock's logs of one part: the seconds
    r"\d{1,6}\.\d\t",
    r"=> => # ",
    # a logger that hands on what a tool said
    r"\[(?:FATAL|ERROR|WARN(?:ING)?|INFO|DEBUG) {0,4}\]:? {1,8}(?=[\w./+-]{1,200}(?::\d{1,6}){0,2}: |nvcc \w{4,8} +:)",
    # uv -v, of what a build prints
    r"DEBUG ",
    # spack's excerpt of a log: the line's number, and which it takes for the error
    r"(?:>> \d{1,6} {2,8}|\d{1,6} {2,8}(?=@E@|error: |\w{1,80} \(ADVANCED\)$))(?:@[A-Z]@)?",
    # cargo hands on what a build script's compiler said
    r"cargo::?warning=",
    r"warning: (?:[\w-]{1,60}@[\w.+-]{1,30}: |(?=[^\s:()]{1,300}[:(]\d{1,7}.{0,20}: (?:fatal )?error: ))",
    # and rustc what its linker said
    r"= note: (?=(?:[\w./+-]{1,200}: ){1,3}\S)",
    r"\[Container\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? ",
    # MSBuild of several projects at once: the project's number
    r"\d{1,4}>(?![&>\d])",
    # docker compose; a number instead of a name would be a line of source that gcc shows
    r"[A-Za-z][\w.-]{0,60} {1,20}\|(?: |$)",
    # Jenkins, dmesg -T, and others: something with a time of day
    r"\[[^\]\[]{0,40}\d\d:\d\d:\d\d[^\]\[]{0,30}\]:? ?",
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?: |$)",
    # the kernel's log, with its level from a console
    r"(?:<\d{1,3}>)?\[ {0,8}\d{1,8}\.\d{6}\](?:\[ *[TC]\d{1,8}\])? ",
    # journalctl and syslog: time, host, program
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,8}\])?: ",
    r"(?:[\w.-]{1,64} )?(?:kernel|earlyoom\[\d{1,8}\]|systemd-oomd\[\d{1,8}\]|systemd\[\d{1,8}\]): ",
    # what was written where, as programs that start others say it
    r"(?:std(?:err|out)|STD(?:ERR|OUT)): ",
    # what starts nvcc and hands on its words: MSBuild, xmake, Python's loggers
    r"(?:[\w.@/\\-]{1,120}(?::\d{1,6})? ?: ?){1,3}(?=(?:nvcc|ptxas|nvlink|cicc)(?:\.exe)? (?:fatal|error) )",
    # a banner of CMake's message(), around what a test program's compiler said
    r"(?:-- )?\*{3} {1,12}(?=\w)",
    # who handed it on, in brackets, before what only a tool says
    r"\[[^\]\[]{1,40}\] {1,8}(?=CMake Error|[\w./+-]{1,80}: (?:fatal )?error|(?:[Ee]rror|ERROR|fatal): |make: \*)",
    # Ant's task, which Maven hands on
    r"(?:\[(?:INFO|ERROR|WARNING)\] {1,8})?\[(?:exec|java|cc|apply)\](?: |$)",
    # npm and node-gyp, of what they start
    r"(?:npm (?:ERR!|error)|gyp ERR!)(?: gyp ERR!)?(?: stack)? ",
    # and npm's own log file: the line's number, the level
    r"\d{1,6} error (?=gyp |make: |[\w.+-]{1,20}: (?:fatal )?error: |In file included from |\.\./)",
    # flutter -v: the time since the line before, or blanks
    r"\[ {1,4}\+\d{1,6} ms\] |\[ {6,9}\] (?=\S| )",
    # srun --label, mpirun --tag-output, torchrun, ray
    r"\d{1,6}: ",
    r"\[[A-Za-z][\w.-]{0,60}\]: ?",
    # vLLM's and others' loggers
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]\s]{1,80}\] ",
    r"\[\d{1,6},\d{1,6}\]<std(?:out|err)>: ?",
    r"\((?:[\w.]{1,60} )?pid=\d{1,8}(?:, ip=[\d.]{1,15})?\)(?: |$)",
    # pip's and rattler's trees, quoted text
    "(?:[│┆╰╭├└─┌>\u00d7╯╮▶|] {0,4})+",
    r"(?:`|\+)-+> ",
)
_PREFIX = re.compile("|".join(_PREFIXES))
MOST_PREFIXES = 6


_NUMBERED = re.compile(rb"(?m)^[ \t]{0,8}(\d{1,7})(?:[ \t]|(?=\r?$))")
LEAST_NUMBERED, NUMBERED_SHARE = 4, 0.9
BEGINNING = 4096
"""bytes of a block, some line of which has a number where all have"""

LEARNED_FROM = 200
"""lines at the beginning of a block, and as many at its end"""
LONGEST_WRAPPING, MOST_FRONTS = 80, 32
WRAPPED_SHARE = 0.8
"""of the lines that are not empty: the others were printed beside"""
LEAST_NAMED = 5
"""lines that say so where what is in front ends like the name of a program"""
LEAST_TIMED = 2
"""lines that say so where there is a time in it: what a logger writes"""

_MARK = re.compile(r"[|\]>)}»] |\ds |: ")
CUT_OFF, NOT_CUT_OFF = "No such file or", " directory"
"""a terminal or a mail broke the line there"""
RUN_ON = "(most recent call last): File"
_RUN_ON = re.compile(
    r"\(most recent call last\): File .{0,8000}? ((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    r"(?:Error|Exception|NotFound|Exit|Timeout): .{0,2000}?)(?: \[end of output\].*| note: .*)?$"
)
"""a traceback whose lines ran into one when it was quoted: what it ends with"""
LONGEST_RUN_ON = 12_000
_TIME = re.compile(r"(?<![\w:.])\d\d:\d\d(?!\d)")
_TIMED = re.compile(r"(?<![\w:.])0:0")
_NUMBER = re.compile(r"\d+")
_NO_WRAPPING = re.compile(
    r"(?i)error|fatal|warning|note:|fail|kill|abort|traceback|file|cannot|undefined|\.\w{1,4}[:(]\d|"
    r"\.(?:obj|o|lib|cpp|cc|c|cu) ?: |^\[ *\d+[/%]|^-- "
    r"|^[\w./+-]*(?:make|ninja|ld|gcc|g\+\+|clang|clang\+\+|cc1plus|nvcc|ptxas|cicc|cmake|configure|collect\d|conda|pip|cargo)\b"
)


_JSON_LINE = re.compile(rb'^\{"[^\n]{2,65536}\}\r?$', re.MULTILINE)


class _Logged(msgspec.Struct, frozen=True):
    """What a logger wrote as one line of JSON: Docker's files, cloud services, structlog."""

    log: object = None
    message: object = None
    msg: object = None
    text: object = None
    line: object = None
    payload: object = msgspec.field(default=None, name="textPayload")


def _out_of_json(block: bytes) -> bytes:
    """Of each line that is an object of JSON with a message, the message, still as one line."""
    return _JSON_LINE.sub(_message, block) if block.startswith(b'{"') or b'\n{"' in block else block


def _message(line: re.Match[bytes]) -> bytes:
    try:
        said = msgspec.json.decode(line[0], type=_Logged)
    except (msgspec.MsgspecError, RecursionError):
        return line[0]
    texts = (said.log, said.message, said.msg, said.text, said.line, said.payload)
    text = next((each for each in texts if isinstance(each, str)), None)
    return line[0] if text is None else re.sub(r"[\r\n]+", " ", text.rstrip()).encode("utf-8", "replace")


def unwrapped(block: bytes) -> bytes:
    """A block without what its lines have around them: JSON, and what is in front of all of them (``wrapping_of``)."""
    block = _without_numbers(_out_of_json(block))
    wrapping = wrapping_of(block)
    return block if wrapping is None else wrapping.sub(b"", block)


def _without_numbers(block: bytes) -> bytes:
    """A block without the numbers of its lines, as a copy from a viewer has them: each is the one before and one."""
    if _NUMBERED.search(block[:BEGINNING]) is None:
        return block
    numbers = [int(each) for each in _NUMBERED.findall(block[: LONGEST_LINE * 4])]
    lines = sum(1 for line in block[: LONGEST_LINE * 4].splitlines() if line.strip())
    follow = sum(after == before + 1 for before, after in pairwise(numbers))
    if follow + 1 < max(LEAST_NUMBERED, NUMBERED_SHARE * lines):
        return block
    return _NUMBERED.sub(b"", block)


def wrapping_of(block: bytes) -> re.Pattern[bytes] | None:
    """What lines of a block have in front beside what ``text_of`` knows: the same but for numbers, set off from the
    rest by a mark, in most of them or with a time of day in it. None without such."""
    first = block[: LONGEST_LINE * 4].split(b"\n", LEARNED_FROM)[:LEARNED_FROM]
    last = block[-LONGEST_LINE * 4 :].rsplit(b"\n", LEARNED_FROM)[-LEARNED_FROM:]
    lines = block.split(b"\n") if len(block) <= LONGEST_LINE else [*first, *last]
    texts = [text for line in lines if (text := text_of(line))]
    shapes = Counter(front for text in texts for front in set(_fronts(text)))
    # What stands in front of an empty line lost its blank.
    alone = Counter(_NUMBER.sub("0", text) for text in texts)
    common = [front for front, count in shapes.items() if count + alone[front.rstrip()] >= _least(front, len(texts))]
    if not common:
        return None
    longest = sorted(common, key=len, reverse=True)[:MOST_FRONTS]
    fronts = "|".join(
        re.escape(each).replace("0", r"\d+") for front in longest for each in (front, f"{front.rstrip()}\n")
    ).replace("\\\n", r"(?=\r?$)")
    known = _PREFIX.pattern.replace(r"\ufeff", "\ufeff")
    return re.compile(rf"(?m)^[ \t]*(?:(?:{known})[ \t]*){{0,{MOST_PREFIXES}}}(?:{fronts})".encode())


def _least(front: str, lines: int) -> float:
    """How many of so many lines have to begin so."""
    if _TIMED.search(front):
        return LEAST_TIMED
    return max(LEAST_NAMED if front.endswith(": ") else LEAST_TIMED, WRAPPED_SHARE * lines)


def _fronts(text: str) -> Iterator[str]:
    """Beginnings of a line that end in a mark, numbers as 0."""
    for mark in _MARK.finditer(text[:LONGEST_WRAPPING]):
        front = text[: mark.end()]
        if _NO_WRAPPING.search(front) and not _TIME.search(front):
            return
        yield _NUMBER.sub("0", front)


def without_sequences(text: bytes) -> bytes:
    """What a terminal would show as letters, of any number of lines."""
    text = _SEQUENCE.sub(b"", text) if b"\x1b" in text else text
    text = text.replace(b"\xc2\xa0", b" ") if b"\xc2" in text else text
    if b"&" in text and any(each in text for each in _ENTITIES):
        text = _ENTITY.sub(lambda entity: _ENTITIES[entity[0]], text)
    text = _PASTED_LINK.sub(b"", text) if b"8;;" in text else text
    return _PASTED.sub(b"", text) if b"[" in text else text


def text_of(line: bytes) -> str:
    """One line as the tool itself wrote it, to be searched. It may hold credentials."""
    line = without_sequences(line).rstrip(b"\r\n").rpartition(b"\r")[2][:LONGEST_LINE]
    text = line.decode("utf-8", "backslashreplace")
    if "\u00e2\u20ac" in text:
        text = _QUOTES.sub(lambda quote: _QUOTED[quote[0]], text)
    if not text.isprintable():
        text = _tabs_kept(text)
    text = text.strip()
    for _ in range(MOST_PREFIXES):
        prefix = _PREFIX.match(text)
        if prefix is None or not prefix.end():
            break
        text = text[prefix.end() :].lstrip()
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    if text.startswith("`"):
        text = _CODE.sub(r"\1", text)
    if RUN_ON in text and len(text) <= LONGEST_RUN_ON and (raised := _RUN_ON.search(text)) is not None:
        text = raised[1]
    if text.endswith(CUT_OFF):
        text += NOT_CUT_OFF
    return text.replace("\t", " ")


def clean(line: bytes) -> str:
    """One line to be shown: nothing in it moves the cursor, and what looks like a credential is masked."""
    return mask_line(one_line(text_of(line)))


def _tabs_kept(text: str) -> str:
    return "\t".join(_CONTROL.sub(" ", part) for part in text.split("\t"))


# -- many words ------------------------------------------------------------------------------------------------------


_LETTERS = bytes(code if chr(code).isalpha() and code < 128 else 0x20 for code in range(256))
_SHAPES = bytes(0x30 if chr(code).isdigit() and code < 128 else code for code in range(256))
_WORD = re.compile(rb"[A-Za-z]+")
_PIECE = 64 * 1024


class _Text:
    """One text, and what of a block's words it takes to be there."""

    __slots__ = ("key", "parts", "shapes", "text", "words")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.shapes = tuple(text.translate(_SHAPES).split())
        """what stands between blanks, each digit as 0"""
        self.words: frozenset[bytes] = frozenset()
        """words of a block, whole"""
        self.parts: tuple[bytes, ...] = ()
        """beginnings and ends of words: with a blank where the word ends"""
        for match in _WORD.finditer(text):
            before = b" " if match.start() > 0 else b""
            after = b" " if match.end() < len(text) else b""
            if before and after:
                self.words |= {match[0]}
            else:
                self.parts += (before + match[0] + after,)
        self.key = max(self.words or self.parts, key=len, default=b"")
        """what is looked for first: the longest whole word, which is quickly looked up, else the longest part"""


_text = cache(_Text)
"""the same for every log"""


class Sieve:
    """Texts to be found, as they stand."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._of_word: dict[bytes, list[_Text]] = {}
        self._of_part: dict[bytes, list[_Text]] = {}
        for each in map(_text, sorted(set(texts))):
            self._by_key(each).setdefault(each.key, []).append(each)

    def _by_key(self, each: _Text) -> dict[bytes, list[_Text]]:
        return self._of_word if each.words else self._of_part

    def texts_in(self, block: bytes) -> set[bytes]:
        """Those of the texts that the block holds."""
        shapes = b" ".join(_shapes_in(block))
        words = set(shapes.translate(_LETTERS).split())
        joined = b" %b " % b" ".join(words)
        near = [self._of_word[word] for word in self._of_word.keys() & words]
        near += [texts for key, texts in self._of_part.items() if key in joined]
        likely = [
            each
            for texts in near
            for each in texts
            if each.words <= words and all(part in joined for part in each.parts)
        ]
        return {each.text for each in likely if all(part in shapes for part in each.shapes) and each.text in block}

    def without(self, text: bytes) -> None:
        """That text is no longer of interest."""
        gone = _text(text)
        among = self._by_key(gone)
        among[gone.key] = [each for each in among[gone.key] if each.text != text]


def _shapes_in(block: bytes) -> set[bytes]:
    """What stands between blanks, each digit as 0: a build repeats itself but for its numbers, so that little is left.

    In pieces: what stands between blanks of a whole block takes eight times its size.
    """
    found: set[bytes] = set()
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PIECE) + 1 or len(block)
        found.update(block[start:end].translate(_SHAPES).split())
        start = end
    return found


def starts_of_lines(block: bytes, text: bytes) -> Iterator[int]:
    """Where lines with that text begin, in order. The block ends with a line feed."""
    at = block.find(text)
    while at >= 0:
        yield block.rfind(b"\n", 0, at) + 1
        at = block.find(text, block.index(b"\n", at))


def starts_from_the_end(block: bytes, text: bytes) -> Iterator[int]:
    """The same, the last one first."""
    at = block.rfind(text)
    while at >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        yield start
        at = block.rfind(text, 0, start)
