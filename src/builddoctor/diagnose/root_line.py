"""The line of a log that counts: the first error of the innermost layer that failed, in known words or others. Pure.

Covers: the root line; errors in order of the steps that failed; whether a log ends badly at all; what else to look at
where the cause is not known.
Does *not* cover: what is the cause, or what is made of it (``diagnose.from_log``).

Layers wrap each other: pip tells what a build hook said, that what ninja said, that what nvcc did. What only says that
something failed is a wrapper, whoever says it; what it wraps stands above it, below it, or in what it hands on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from builddoctor.core.verdict import Finding, Verdict, Weight
from builddoctor.diagnose.catalogue import Layer, layer_of
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.log_lines import Quote
from builddoctor.diagnose.log_scanner import Reading, failure

LINES_BEFORE_STEP = 200
"""make says after the error which step it was, and other steps print in between"""

TRIED_OUT = re.compile(r"\bconftest\b|CMakeTmp\b|CMakeScratch\b|\bTryCompile\b|\bCMake(?:Error|Output|ConfigureLog)\b")
"""what configure steps try out may fail"""

MUST_WORK = "compiler-lacks-standard"
"""said where nothing of what was tried out did"""
MUST_COMPILE = frozenset(("compiler-makes-nothing", "cmake-nvcc-broken", "cmake-nvcc-id-failed"))
"""but for the compilers themselves: what stands below is why they do not work"""

HARMLESS = re.compile(r"hit memory(?:\+swap)? limit at least once")
"""Slurm says so of full page cache too"""

WENT_ON = re.compile(
    r"^-- (?:Build files have been written|Generating done)|^config(?:ure|\.status): creating "
    r"|^Your branch is up to date|^Already on |\(ignored\)$"
)
"""printed after an error that did not stop the build"""

CONFIGURED = re.compile(r"-- Configuring done")
CMAKE_SAID = "cmake-said"

_CALLED = re.compile(r"\W{0,3}(?:ERROR|Error|error|FATAL|Fatal|fatal|E)\b")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|During handling of the above|The above exception was")

_BANNER = r"\W{0,6}(?:ERROR|FATAL(?: ERROR)?)\W{0,6}$"
"""of a script: what is wrong stands below it"""

LAST_WORDS = 3
ENDS_BADLY = re.compile(
    r"\bFAILED\b|\b[Ee]xit status [1-9]|^status [1-9]\d{0,2}$|[Ee]rrors? while running|: Broken pipe$"
    r"|\bexited with (?:code )?(?!0\b)\d|\bAborted\b|^The configuration failed|^Failing command: "
    r"|\bmake(?:\[\d{1,4}\])?: (?:\*\*\*[ N]|stopped in /)|^NMAKE : .{0,20}U1\d{3}: "
    r"|^installation of package \S{1,80} had non-zero exit status$|^ExitFailure -?[1-9]"
    r"|\bfailed (?:during|while|to (?:install|build|compile|configure|link|load))\b"
    r"|^while loading .{1,300}, in expression starting on line \d|^(?:Quitting|Aborting|Bailing out)[.! ]*$"
    rf"|^{_BANNER}"
)

LINES_NEXT = 2
REASONS = 3
"""other lines that may be it, shown where the cause is not known"""

MATTERS = re.compile(
    r"(?i)error|fatal|fail|kill|abort|cannot|not found|no such|denied|exception|undefined|exit (?:code|status)"
)


def innermost(findings: Iterable[Finding]) -> Finding | None:
    """The first one of the innermost layer; a full disk before all others, which it explains and they do not."""
    return min(
        findings,
        key=lambda each: (each.verdict is not Verdict.DISK_FULL, layer_of(each.entry), each.line),
        default=None,
    )


def root_line(reading: Reading, facts: LogFacts, cause: Finding | None) -> Finding | None:
    """The first error of the innermost layer that failed: what says the cause, else an error in a tool's own words,
    else what make or ninja say of their step. None where the log has no such line."""
    if cause is not None and cause.weight is Weight.SAYS:
        return _whole_message(cause, reading.findings)
    for among in by_step(reading, facts):
        errors = [each for each in among if each.weight in (Weight.HINTS, Weight.GUESSES, Weight.SHOWS)]
        inner = [each for each in errors if not _wraps(each) and not _around_output(each, among)]
        if (first := innermost(inner or errors)) is not None:
            if cause is not None and layer_of(cause.entry) <= layer_of(first.entry):
                return _whole_message(cause, reading.findings)
            # A wrapper alone: what a tool said in words that nobody knows stands beside it.
            wraps = _wraps(first)
            said = _said_near(reading, first.line, reasons_alone=True) if wraps else _said_within(reading, first)
            said = said or (_of_step_before(reading, first) if wraps else None)
            return said or _above_chain(first, reading) or _end_of_chain(first, among)
    driver = _step_of(each for each in reading.findings if each.weight is Weight.TRAILS)
    return None if driver is None else _said_near(reading, driver.line) or _named_above(driver, reading)


_BARE_EXIT = re.compile(r"(?i)exit (?:code|status):? -?\d{1,5}")
"""pip's second line of what failed"""


def _named_above(driver: Finding, reading: Reading) -> Finding:
    """Of a bare number: the line above it, which says whose it is."""
    above = _lines_of(reading).get(driver.line - 1, "")
    return _shown(driver.line - 1, above) if _BARE_EXIT.fullmatch(driver.text) and _WRAPS.search(above) else driver


def _whole_message(cause: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a cause that is a line of CMake's message: the message, which begins with where it was sent from."""
    below = (each for each in findings if each.entry == CMAKE_SAID and 0 < cause.line - each.line <= CHAIN_LINES)
    return next((each for each in below if f": {cause.text}" in each.text), cause)


def _step_of(trails: Iterable[Finding]) -> Finding | None:
    """The innermost step that failed: of what wraps a whole build, the build tool's that stands above it."""
    numbered = list(trails)
    step = innermost(numbered)
    if step is None or not _wraps(step):
        return step
    return innermost(each for each in numbered if each.line < step.line and not _wraps(each)) or step


def _of_step_before(reading: Reading, wrapper: Finding) -> Finding | None:
    """Of a wrapper alone: the step that a build tool named above it as failed, or what stands right above that."""
    steps = (each for each in reading.findings if each.weight is Weight.TRAILS and each.line < wrapper.line)
    step = _step_of(each for each in steps if wrapper.entry != CHAIN and wrapper.line - each.line <= NEAR)
    return None if step is None else _said_near(reading, step.line) or step


WRAPPER, CHAIN, CRASH = "wrapper-said", "chain-said", "crashed"
MESSAGE = "message-below"
HANDED_ON = "pip-subprocess"
_EMPTY = re.compile(r": ?(?:WARNING: .*)?$")
EXCEPTIONS = frozenset(("python-raised", "python-raised-below"))
LINES_TO_QUOTED = 12
"""from a message to where the output begins that it quotes"""
CHAIN_LINES = 6
"""from an error to the last of what it names as its causes"""


LAST_WORD = "compilation-terminated"


def _stopped_before(reading: Reading, line: int) -> Finding | None:
    """A compiler's last word shortly before a wrapper: how many errors it counted, where a copy left them out."""
    return innermost(each for each in reading.findings if each.entry == LAST_WORD and 0 < line - each.line <= NEAR)


def _wraps(found: Finding) -> bool:
    return found.entry == WRAPPER or _WRAPS.search(found.text) is not None


def _around_output(found: Finding, findings: Sequence[Finding]) -> bool:
    """A cause that is named right below what pip handed on of a build, whose error is the inner one."""
    ends = (each.line for each in findings if each.entry == HANDED_ON)
    return found.entry == CHAIN and any(0 < found.line - end <= CHAIN_LINES for end in ends)


def _said_within(reading: Reading, found: Finding) -> Finding | None:
    """Of an exception that another one caused: that one, though nobody knows its name. Of a message that quotes the
    output of a program: the first line of that which speaks of an error."""
    lines = _lines_of(reading)
    numbered = sorted(lines.items())
    if found.entry in EXCEPTIONS:
        first = _exception([each for each in numbered if each[0] < found.line])
        told = first is not None and ": " in first.text and _CAUSED in lines.values()
        return _shown(first.line, first.text) if first is not None and told else None
    quotes = next((line for line, text in numbered if line >= found.line and _QUOTES.search(text)), None)
    if quotes is None or quotes - found.line > LINES_TO_QUOTED:
        return None
    within = [each for each in numbered if quotes < each[0] <= quotes + NEAR and not _WRAPS.search(each[1])]
    return next((_shown(*each) for each in within if _speaks_of_failure(each[1])), None)


def _end_of_chain(found: Finding, findings: Sequence[Finding]) -> Finding:
    """The last of the causes that are named right below an error, or the error that its own message hands on: each is
    nearer to what happened."""
    near = [each for each in findings if 0 < each.line - found.line <= CHAIN_LINES]
    last = found
    for each in findings:
        near_by = each.entry == CHAIN and 0 < each.line - last.line <= CHAIN_LINES
        if near_by and not _wraps(each) and not _around_output(each, findings):
            last = each
    # Of a message that begins with nothing, or with warnings: the error in it.
    inner = [each for each in near if _EMPTY.search(found.text.partition(each.text)[0]) and each.text in found.text]
    inner = inner if found.entry == MESSAGE else []
    if found.weight is not Weight.SHOWS:
        return found
    return last if last is not found else [found, *inner[:1]][-1]


_CARGOS = re.compile(r"error: (?:[Cc]ould not compile|failed to run custom build command for) [`\w]")


def _above_chain(found: Finding, reading: Reading) -> Finding | None:
    """Of a chain of causes that says no more than that a program failed: what cargo says above it of which package."""
    lines = _lines_of(reading)
    above = max((each for each in lines if each < found.line), default=0)
    cargos = found.entry == CHAIN and _wraps(found) and _CARGOS.match(lines.get(above, "")) is not None
    return _shown(above, lines[above]) if cargos else None


NEAR = 20
"""lines that are not empty, before a build tool's own: where the reason stands, if it stands anywhere"""

NINJA = "FAILED: "
_SAYS_BELOW = re.compile(rf"{NINJA}|(?:error|Error|ERROR): ")
_NINJAS_OWN = re.compile(rf"\[\d{{1,6}}/\d{{1,6}}\] |ninja: |{NINJA}|Traceback |^\[end of output\]")

_COMMAND = re.compile(r" -\w|&&|(?:^|[\w/\\])\S*\.\w{1,4}$")

_FAILS = re.compile(
    r"(?i)(?:\b|_)(?:error|fatal|failed|failure|bailing out|fehler|fehlgeschlagen|erreur|échec|échoué|erro|falló|falha"
    r"|errore|ошибка|fout|błąd)\b(?!\.[a-z]\w{0,3}\b)|错误|失败|エラー|失敗|오류"
)
"""but not as the name of a file: error.o"""
_KILLED = re.compile(r"(?:[Kk]illed|[Tt]erminated|[Aa]borting|SIG(?:KILL|TERM|SEGV|ABRT|BUS|ILL))\b")
_KILLS = re.compile(r"(?:\S{1,80}: )?(?:line \d{1,6}: )?(?: *\d{1,8} )?(?:Killed|Terminated)\b")
"""a shell's own word of what it had started"""
_LACKS = re.compile(
    r"(?i)\b(?:cannot|can't|could ?n[o']t|unable to|not found|no such|missing|denied|invalid|unsupported|not supported"
    r"|undefined|unrecognized|unknown|mismatch|refused|aborted|incompatible|too old|too new|does not exist"
    r"|(?:is|was) not (?:set|defined|installed|available))\b"
)
_LACKS_TOO = re.compile(
    r"(?i)\b(?:not (?:set|defined|installed|available|detected|compatible|recogni[sz]ed|satisfied|working)|sorry"
    r"|giving up|not \w{3,20} successfully"
    r"|(?:does not|doesn't|do not|don't) (?:match|work|support|have|contain|provide)|too (?:low|small)"
    r"|no [\w .+/-]{1,40} (?:found|detected|available)|conflicts? with|problems? \w+ing)\b"
)
"""where something failed: the end of a log that went well may say as much"""
_NEGATES = re.compile(
    r"(?i)\b(?:(?:did|does|do|is|was|were|are|has|have|could|would|will)(?: not|n['\u2019]t)"
    r"|not (?:found|ok|enough|allowed|valid|possible|permitted)|no (?:such|space|rule|valid|matching)|without success"
    r"|illegal|exceed(?:s|ed)|truncated|timed out|time-?out|forbidden|conflict\w*|crash\w*|broken|corrupt\w*|gave up"
    r"|shut ?down|(?:longer|larger|bigger) than|expired|rejected|overflow\w*|duplicate|ambiguous|cancell?ed|stopped"
    r"|(?:was|been) terminated|build terminated)\b|\bERR!"
    r"|\b(?:nicht|kein(?:e[nrs]?)?|konnte|introuvable|impossible|non défini|aucun|indéfini\w*"
    r"|не (?:удалось|найден\w*|осталось|определен\w*|определён\w*|может)|нет"
    r"|no se (?:pudo|puede|encontr\w*)|indefinid\w*|não (?:foi|encontr\w*|pode)"
    r"|non (?:trovat\w*|definit\w*|può|riuscit\w*)|nie (?:można|znaleziono|istnieje))\b"
    r"|未定义|未定義|未找到|找不到|无法|無法|没有|沒有|不能|不支持|不支援|不存在|停止|終止|终止"
    r"|太长|过长|過長|できません|見つかりません|ありません|없습니다|찾을 수|않"
)
"""right before a step that failed, in many languages: something is not as it should be"""
_OVER = re.compile(
    r"(?i)\b(?:(?:did|could|was|were|has|have)(?: not|n['\u2019]t)|not enough|exceeded|does not contain"
    r"|longer than the maximum|truncated|timed out|crashed|g[ai]v(?:e|ing) up|shutdown signal"
    r"|(?:been|was) (?:terminated|cancell?ed|killed|shut down)"
    r"|(?:job|build|step|operation) (?:terminated|cancell?ed))\b|\bERR!|^cancell?ed[.!]?$"
    r"|\b(?:konnte nicht|nicht (?:gefunden|möglich|definiert)|introuvable|impossible de|non défini|no se pudo"
    r"|no se encontr|não (?:foi possível|encontrad)|non (?:trovat|è stato possibile)|nie można"
    r"|не (?:удалось|найден|осталось|определ))"
    r"|未定义|未定義|未找到|找不到|无法|無法|できませんでした|見つかりません|찾을 수 없"
)
"""the same of the last line of a log, in words that hardly end one that went well"""
_ASKS = re.compile(
    r"(?i)^(?!.*(?:\bto (?:use|enable|get|build|run|view|see|generate)\b|\bif you\b|\boptional|\brecommend|\bwarn"
    r"|\bfor (?:more|better|best)\b)).*(?:\bplease (?:\w+ ){0,3}install\b|\bmust be installed\b)|^\+{1,3} exit [1-9]"
)
_GAVE_UP = re.compile(
    r"(?i)^(?:remote:)?\W{0,12}"
    r"(?:the following .{1,60} (?:are|were) (?:not (?:satisfied|met|found|installed)|missing)\b"
    r"|(?:installation|configuration|configure|set-?up|the build) (?:has )?(?:failed|aborted)\b|giving up\b"
    r"|push rejected\b|do not know how to unpack\b|[1-9]\d{0,3} packages? failed: )"
)
"""said by scripts of projects, above what they say of the machine"""
_BARE = re.compile(
    r"(?i)\b(?:failed|fehlgeschlagen|échoué)\b[.!)=\]\s]*(?:Took .{1,40})?$|失败。?$|失敗。?$|\]\s*failed$"
)
"""it says that something failed, and nothing of why: what does say why is the better line"""
_ADVISES = re.compile(r"(?:To|Please|You|If|Try|Run|See|It is recommended) \w")
_DEMANDS = re.compile(
    r"(?i)\b(?:please (?:\w+ ){0,4}(?:install|upgrade|update|set|specify|use|run)|(?:must|need to|have to|needs to) be"
    r"|you (?:must|need|have to|should)|(?:is|are) (?:required|needed)|requires|at least|or (?:later|newer|higher)"
    r"|>= ?\d|only (?:works|supports?|available)|forg[eo]t(?:ten)? to|exiting|quitting|stopping)\b"
)
_NO_REASON = re.compile(
    r"(?i)\bwarning\b|\bnote: |^-- |^checking |\bError \d+$"
    r"|\b(?:no|0) (?:errors?|failures?|failed|(?:tests?|packages?) failed|broken|problems?|conflicts?|crash\w*"
    r"|duplicates?)\b"
    r"|\bexit (?:code|status)\b|\bnon-zero\b|\bunfinished jobs\b|\brecipe for target\b"
    r"|\bsee (?:above|below|also)\b|\blogs? (?:for|file)\b|errors? found in"
    r"|^(?:quitting|aborting|bailing out)[.! ]*$"
    r"|\bskipp|: In (?:\w{4,12} )?function |^# --error 0x|\becho (?:-\w{1,3} )?(?:>&2 )?[\"'\\]"
)


_WRAPS = re.compile(
    r"\.\.\. (?:error|failed)$|\bdid not run successfully\b|\bfinished with status 'error'|\berrored (?:out|with)\b"
    r"|\bwith error code\b|^(?:ERROR: )?Failed (?:to build|building) |^The configuration failed|^[-=*#]{4,}$"
    r"|-generation-failed$|-exited-with-error$|^(?:error: )?The build backend returned an error"
    r"|\bBackend subprocess exited\b|\berror originates from a sub|\bld: final link failed: (?![Nn]o space|[Mm]emory)"
    r"|^error: (?:[Cc]ould not compile|failed to run custom build command|failed to compile) "
    r"|^(?:ERROR|error):$|^(?:ERROR|[Ee]rror) ?-{1,3}$|-- ANTICONF ERROR -|^(?:ERROR|[Ee]rror): [-=*#]{8,}$"
    r"|^error: Cannot build '/nix/store/"
    r"|^(?:error: )?(?:cannot build derivation .{1,300} couldn't be built|\d{1,4} dependenc\w{1,3} of derivation ')"
    r"|\bbuild of [`'\u2018]?/(?:gnu|nix)/store/\S{1,200} failed$"
    r"|\bduring the fetch of repository '|\bTraceback \(most recent call last\):|\bdue to previous errors?\b"
    r"|\bCould not read from remote repository|^fatal: clone of '|^Failed to clone '"
    r"|^configure:(?:\d{1,6}:)? error: in [`'\u2018]|^fatbinary fatal {1,4}: Could not open input file"
    r"|\breturned ExitFailure \d|Failed to generate test project build system|^Failed executing: "
    r"|^\*\* \(Mix\.Error\) Could not compile|\bgave error exit status\b|^ERROR: \S{1,80}: Error in build\(\) method"
    r"|Exception raised during nimble script|\berror MSB30(?:73|30)\b|^Configuration failed\. This could reflect"
    r"|^\[(?:ERROR|INFO)\] (?:COMPILATION ERROR|Compilation failure|The compilation of \S{1,80} failed at)"
    r"|^Error: (?:[Cc]ommand failed|Docker build failed with exit code)|^ERROR {1,2}Failed to compile with \d"
    r"|^Summary: \d+ tasks? failed|\bwas unable to build\b|\bprocess didn't exit successfully\b"
    r"|^ERROR: compilation failed for package |\bhad non-zero exit status$|: Failed to install '.{1,80}' from \w+:$"
    r"|\bFunction failed: \w+ \(log file is located at|^ERROR: Failed to build gem native extension"
    r"|^(?:ERROR|[Ee]rror): (?:[`'\"\u2018]?[\w./+-]{1,80}['\"\u2019]? failed[.!]?|(?:at|in) \S{1,300}:\d{1,6}:?)$"
    r"|^\* What went wrong: (?:A problem occurred \w{5,15}ing \S{1,30}|Execution failed for task) '.{1,100}'\.$"
    r"|^\* ERROR: \S{1,200} failed \(\w{1,20} phase\):$|^(?:>>> )?Failed to emerge \S"
    r"|^Jobs: \d{1,4} of \d{1,4} complete"
    r"|^\* {1,4}(?:emake failed|\(no error message\))$"
    r"|^Error: (?:See \S{1,400} for details|Follow https?://\S{1,200} |Processing of port \S{1,80} failed$)"
    r"|^ERROR: dependenc(?:y|ies) .{1,300} (?:is|are) not available for package "
    r"|^ERROR: \S{1,300}BUILD(?:\.bazel)?:\d{1,6}:\d{1,4}: .{1,300} failed:? \(Exit \d|^Exception in thread "
    r"|\bnvcc error while executing |^ConanException: Error \d{1,5} while executing "
    r"|^Processing terminated by xsl:message\b|^compilation aborted for \S{1,300} \(code \d{1,3}\)$"
    r"|\b[Ff]ailed to (?:build|compile|load)\b.{0,200}\b[Dd]etails:$"
    r"|\b[Ss]ee (?:the )?(?:log(?: file)?|compiler (?:error )?output)(?: above)? for (?:more )?details?\b"
    r"|\bfailed after \d[\d.:]{0,8} ?\w{1,12}\.?$"
    r"|^Could not build the (?:precompiled )?application for |^Error launching application on "
    r"|^(?:Error|Uncategorized) \(Xcode\): (?:Command \w{1,60} failed with|Linker command failed)"
    r"|^=> ERROR \[|^(?:\*{3} )?CMake (?:build|configuration|install) failed$"
    r"|\.go:\d{1,7}: running \"[^\"]{1,80}\": exit status \d"
)
"""what says that something failed, and never why"""
_OPENS = re.compile(
    r"\[\d{1,7} lines? of output\]|Complete output(?: from command .{1,600}| \(\d{1,7} lines?\))?:?|\[std(?:err|out)\]$"
    r"|--- std(?:err|out)$"
)
_CLOSES = re.compile(
    r"\[end of output\]|-{8,}$|hint: |note: |Command \"|\[std(?:err|out)\]$|(?:ERROR: )?Command errored out"
    r"|--- std(?:err|out)$|warning: build failed, waiting"
)
"""around what pip, uv and cargo hand on of a build"""
_ENDED = re.compile(
    r"(?:[\w./-]{0,100}make|scons)(?:\[\d{1,4}\])?: \*\*\* |\+{1,3} exit [1-9]"
    r"|(?:Error: )?Process completed with exit code"
    r"|The command ['\"\[].{1,600}['\"\]] (?:returned a non-zero code|exited with)"
    r"|(?:ERROR: )?(?:failed to solve: )?process \".{1,600}\" did not complete"
    r"|collect2: |\S{0,200}ld: final link failed|\S{0,200}clang(?:\+\+)?: error: linker command failed"
)
"""what a build tool or CI says of a step right below the last that it printed"""
_TOOLS_OWN = re.compile(r"(?:[\w.+-]{0,80}/){0,12}[\w.+-]{2,40}: [A-Za-z]")
_STARTED = re.compile(
    r"[$+>#] |Run |Entering |Leaving |\[\s*\d{1,3}%\]|(?:cd|set|export|echo|mkdir|cp|rm) "
    r"|(?:[\w.+-]{0,80}/){0,12}[\w.+-]{1,40} -\w"
    r"|[A-Z][A-Z\d+_]{1,14}(?: \[\w\])? {2,12}[\w./+-]{1,200}$"
)
"""commands, and what stands for them: of automake and of Kbuild a word in capitals with a file"""
_OPTION = re.compile(r" --?[\w-]")
_SAYS = re.compile(r"(?i)\b(?:error|fatal|warning|failed)\b ?[:\uff1a]")

_CAUSED = "The above exception was the direct cause of the following exception:"
_QUOTES = re.compile(r"(?:[Tt]he output was|the following output):$")

_WORDS = re.compile(r"[^\W\d_]{2}")
_RULER = re.compile(r"[-=*#_]{8,}$")
LINES_OF_A_BOX = 12
_NOT_SAID = re.compile(
    r"^(?:\S{0,80}|\[[^\]]{1,80}\])[$#>]$|^status \d+$|^at [\w.<>`$/ ]{1,200}[(\[]|^[-*•] \S{1,80}$"
    r"|^Post job cleanup|^(?:Cleaning up|Terminate) orphan |: recipe for target '"
    r"|^\(?(?:[Aa]n? )?(?:complete|full|detailed) (?:log|output)s? |^[\w./\\:~-]{1,300}\.log$"
)
"""prompts, ends of "exit status", frames of a stack, items of a list, where a log is, and what CI does at its end"""


def _shown(line: int, text: str) -> Finding:
    return Finding(entry="", verdict=None, weight=Weight.SHOWS, line=line, text=text)


def _lines_of(reading: Reading) -> dict[int, str]:
    """The lines that are known: the last ones, and those around the first step that failed."""
    return {**dict(_last_lines(reading)), **{each.line: each.text for each in reading.near}}


def _tells(text: str) -> bool:
    """It says that something failed; a tool that names itself may say so in other words than error."""
    return bool(_FAILS.search(text) or (_TOOLS_OWN.match(text) and _LACKS.search(text)))


def _speaks_of_failure(text: str) -> bool:
    return bool(_FAILS.search(text) or _LACKS.search(text)) and not _NO_REASON.search(text)


def _ends_in_trouble(text: str) -> bool:
    """Of the last line: it says of something that it is not as it should be."""
    says = _FAILS.search(text) or _LACKS.search(text) or _OVER.search(text)
    return bool(says) and not _NO_REASON.search(text) and not HARMLESS.search(text)


def _said_near(reading: Reading, line: int, *, reasons_alone: bool = False) -> Finding | None:
    """Where no text of an error is known but a build tool's own, in that line: the first one just before it that speaks
    of an error, else of something that is missing; ninja prints what a tool said after its own line and the command."""
    # A crash is told in the line of what crashed.
    told = {each.line for each in reading.findings if each.entry != CRASH}
    lines = _lines_of(reading)
    others = [(number, lines[number]) for number in sorted(lines.keys() - told) if not _WRAPS.search(lines[number])]
    handed_on = _handed_on(others)
    before = [each for each in others if each[0] < line][-NEAR:]
    # Below ninja's own line stands the command, unless a copy left it out.
    below = lines.get(line + 1, "")
    left_out = below != "" and (failure().is_it(below) or not _COMMAND.search(below))
    begin = line + (lines.get(line, "").startswith(NINJA) and not left_out)
    after = [each for each in others if each[0] > begin][:NEAR] if _SAYS_BELOW.match(lines.get(line, "")) else []
    if (reason := next(_reasons([*after, *(handed_on or before)], reasons_alone=reasons_alone), None)) is not None:
        return _shown(*reason)
    ended = handed_on[-1][0] if handed_on else line
    if reasons_alone and (stopped := _stopped_before(reading, ended)) is not None:
        return stopped
    # In no known words: the last that the tool printed.
    if handed_on:
        said = handed_on
    elif lines.get(line, "").startswith(NINJA):
        own = next((place for place, each in enumerate(after) if _NINJAS_OWN.match(each[1])), len(after))
        said = after[:own]
    else:
        said = _right_above(others, lines.get(line, ""), line)
    said = [each for each in said if _WORDS.search(each[1]) and not _NO_REASON.search(each[1])]
    return _shown(*said[-1]) if said else None


LEAST_OPTIONS = 3


def _is_command(text: str) -> bool:
    """A command as it was started, with many options: what stands in it names files and switches, and no reason."""
    return bool(_STARTED.match(text)) and len(_OPTION.findall(text)) >= LEAST_OPTIONS and not _SAYS.search(text)


def _reasons(numbered: Iterable[tuple[int, str]], *, reasons_alone: bool) -> Iterator[tuple[int, str]]:
    """The first of these lines in each kind of words, the likeliest kind first."""
    likely = [each for each in numbered if not _NO_REASON.search(each[1]) and not _is_command(each[1])]
    reasons = [each for each in likely if not _BARE.search(each[1])]
    plain = [each for each in reasons if not _ADVISES.match(each[1])]
    tiers: tuple[tuple[Callable[[str], object], list[tuple[int, str]]], ...] = (
        (_KILLS.match, reasons),
        (_tells, reasons),
        (_LACKS.search, plain),
        (_LACKS_TOO.search, plain),
        (_KILLED.search, plain),
        (_tells, [] if reasons_alone else likely),
        (_DEMANDS.search, likely),
        (_NEGATES.search, plain),
    )
    for tells, among in tiers:
        first = next((each for each in among if tells(each[1])), None)
        if first is not None:
            yield first


def _handed_on(numbered: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """What pip or uv hands on of a build, where these lines have its beginning: the last that is not empty."""
    handed_on: list[tuple[int, str]] = []
    for place, (_, text) in enumerate(numbered):
        if _OPENS.match(text):
            below = numbered[place + 1 :]
            end = next((behind for behind, each in enumerate(below) if _CLOSES.match(each[1])), len(below))
            handed_on = list(below[:end]) or handed_on
    return handed_on


LINES_ABOVE = 2


def _right_above(numbered: Sequence[tuple[int, str]], driver: str, line: int) -> list[tuple[int, str]]:
    """The last that was printed above what a build tool or CI says of a step that ended: of make's, in the form in
    which programs speak, for a command may stand there."""
    above = [each for each in numbered if line - LINES_ABOVE <= each[0] < line and not _STARTED.match(each[1])]
    if not _ENDED.match(driver):
        return []
    return [each for each in above if _TOOLS_OWN.match(each[1])] if "***" in driver else above


def some_line(reading: Reading, facts: LogFacts) -> Finding:
    """To begin with, where nothing is known: the root line, what stands near a step's end, or whatever there is."""
    last = max((line for line, text in _last_lines(reading)[-1:] if _ENDED.match(text)), default=reading.lines + 1)
    found = root_line(reading, facts, None) or _said_near(reading, last) or _any_wrong(reading)
    return _before_nothing(_below_label(found, reading), reading)


_OF_NOTHING = re.compile(r"(?:Type|Attribute)Error: 'NoneType' object ")


def _before_nothing(found: Finding, reading: Reading) -> Finding:
    """Of an exception that says no more than that something was not there: what is said right before its traceback of
    something that is missing."""
    lines = _lines_of(reading)
    above = [(each, lines[each]) for each in sorted(lines) if each < found.line]
    if not _OF_NOTHING.search(found.text) or not above:
        return found
    header = next((place for place in reversed(range(len(above))) if _TRACEBACK.match(above[place][1])), len(above))
    while 0 < header == len(above) and _FRAME.match(above[-1][1]):
        above.pop()
        header = len(above)
    said = [each for each in above[max(0, header - LINES_NEXT) : header] if _LACKS.search(each[1])]
    return _shown(*said[-1]) if said else found


_LABEL = re.compile(r"[:\uff1a]$")
_PHASE = re.compile(r"^\* ERROR: \S{1,200} failed \(\w{1,20} phase\):$")
"""Portage: what the package itself says stands below it"""
_TITLE = re.compile(r"#?[=*-]{3,}\W{0,3}(?:ERROR|[Ee]rror)\b.{0,150}[=*-]{3,}#?$")
"""opam's and Julia's: a headline between rulers"""


def _below_label(found: Finding, reading: Reading) -> Finding:
    """What a program says below a line that only announces it: "Standard error:", "unable to load shared object:"."""
    lines = _lines_of(reading)
    below = next(((each, lines[each]) for each in sorted(lines) if each > found.line and lines[each]), None)
    text = lines.get(found.line, found.text)
    banner = re.match(_BANNER, text)
    title = banner or _TITLE.match(text)
    if below is None or below[0] - found.line > LINES_NEXT or not (title or _LABEL.search(text)):
        return found
    if _WRAPS.search(below[1]):
        return found
    says = (
        _PHASE.match(found.text) or banner or ((title or _TOOLS_OWN.match(below[1])) and _speaks_of_failure(below[1]))
    )
    return _shown(*below) if says else found


def _any_wrong(reading: Reading) -> Finding:
    """Of a log that ends badly, with no line that is known: the first that speaks of a failure, else the last one."""
    numbered = _last_lines(reading)
    matter = [
        Quote(line=number, text=text) for number, text in numbered if MATTERS.search(text) and not _WRAPS.search(text)
    ]
    line, text = [(reading.lines, ""), *numbered[-1:], *_said_last(numbered)][-1]
    last = Quote(line=line, text=text)
    said = _exception(numbered) or reading.wrong or next(iter(matter), last)
    # Of wrappers alone: the first of them.
    wrapper = next((Quote(line=each, text=text) for each, text in numbered if _WRAPS.search(text)), said)
    said = wrapper if _WRAPS.search(said.text) and wrapper.line < said.line else said
    return _shown(said.line, said.text)


_FRAME = re.compile(r'File ".{1,300}", line \d')
_RAISED = re.compile(r"raise \w|assert |(?:sys\.)?exit\(.{0,4}[\"']")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:: \S|:?$)")
_UNDERLINES = re.compile(r"[\^~ ]+$|[)\]}]")
LINES_OF_A_FRAME = 4


def _exception(numbered: Sequence[tuple[int, str]]) -> Quote | None:
    """What a traceback of Python ends with, whatever the exception is called: of the first one in these lines. Where
    the copy ends before that: what was raised."""
    for place, (_, text) in enumerate(numbered):
        below = numbered[place + 1 : place + 1 + LINES_OF_A_FRAME]
        if _FRAME.match(text) and not any(_FRAME.match(each) for _, each in below):
            said = next((each for each in below if _EXCEPTION.match(each[1])), None)
            said = said or next((each for each in below if _RAISED.match(each[1])), None)
            # In no form of Python's: what stands below the frame's line of source.
            said = said or next((each for each in below[1:] if not _UNDERLINES.match(each[1])), None)
            if said is not None:
                return Quote(line=said[0], text=said[1])
    return _before_frames(numbered)


_ABOVE_FRAMES = re.compile(r"[A-Z]\w{0,60}(?:Error|Exception|Exit)\b.{0,300}:$")


def _before_frames(numbered: Sequence[tuple[int, str]]) -> Quote | None:
    """Of a log that ends within the frames of a traceback whose exception stands above them, as SCons prints it."""
    if not any(_FRAME.match(text) for _, text in numbered[-LAST_WORDS:]):
        return None
    above = [each for each, (_, below) in pairwise(numbered) if _FRAME.match(below) and _ABOVE_FRAMES.search(each[1])]
    return Quote(line=above[-1][0], text=above[-1][1]) if above else None


def by_step(reading: Reading, facts: LogFacts) -> tuple[list[Finding], ...]:
    """Findings of the first step that failed, those from there on, all."""
    begin = 1
    if reading.failing is not None:
        begin = reading.failing if _is_ninja(reading, facts) else max(1, reading.failing - LINES_BEFORE_STEP)
    end = facts.failed[1].line if len(facts.failed) > 1 and _is_ninja(reading, facts) else reading.lines + 1
    must = next((each.line for each in reading.findings if each.entry in MUST_COMPILE), reading.lines + 1)
    findings = [each for each in reading.findings if each.line > must or not _tried_out(each)]
    probes = frozenset[int]() if any(each.entry == MUST_WORK for each in findings) else reading.tried
    # Of what was tried out alone: that.
    findings = [each for each in findings if each.line not in probes] or findings
    after = [each for each in findings if each.line >= begin]
    return [each for each in after if each.line < end], after, findings


def _tried_out(found: Finding) -> bool:
    """It may fail: but not to write down what is to be tried."""
    return TRIED_OUT.search(found.text) is not None and not found.text.startswith("CMake Error in ")


def _is_ninja(reading: Reading, facts: LogFacts) -> bool:
    return bool(facts.failed) and facts.failed[0].line == reading.failing


def ends_badly(reading: Reading, trails: Sequence[Finding]) -> bool:
    """The end of a log says that something failed, and nothing after it that all is well."""
    wrong = failure()
    numbered = _last_lines(reading)
    bad = [number for number, text in numbered if wrong.is_it(text) and not HARMLESS.search(text)]
    bad += [number for number, text in numbered[-LAST_WORDS:] if ENDS_BADLY.search(text)]
    last = _said_last(numbered)
    bad += [number for number, text in last if _ends_in_trouble(text)]
    bad += [number for number, text in last[-1:] if _ASKS.search(text)]
    bad += [number for number, text in numbered if _GAVE_UP.search(text) and not _NO_REASON.search(text)]
    if (above := _before_frames(numbered)) is not None:
        bad.append(above.line)
    bad += [trail.line for trail in trails]
    said = [each for each in reading.findings if each.weight in (Weight.GUESSES, Weight.SHOWS)]
    bad += [each.line for each in said if layer_of(each.entry) < Layer.DRIVER.rank]
    went_on = max((number for number, text in numbered if WENT_ON.search(text)), default=0)
    # CMake writes build files all the same where it finds an error while it generates them.
    generates = max((number for number, text in numbered if CONFIGURED.match(text)), default=went_on)
    generated = any(generates < each.line < went_on and each.entry == CMAKE_SAID for each in said)
    return max(bad, default=0) > went_on or generated


def _said_last(numbered: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The last line that says anything; all of a box between rulers, where the log ends with one."""
    told = [place for place, (_, text) in enumerate(numbered) if _WORDS.search(text) and not _NOT_SAID.search(text)]
    if not told:
        return []
    rulers = [place for place, (_, text) in enumerate(numbered) if _RULER.match(text)]
    above = [place for place in rulers if place < told[-1]][-1:]
    if above and rulers[-1] > told[-1] and told[-1] - above[0] <= LINES_OF_A_BOX:
        return list(numbered[above[0] + 1 : told[-1] + 1])
    return [numbered[told[-1]]]


def last_words(reading: Reading) -> str:
    """The last line that says anything, as it is quoted; empty where there is none."""
    return "".join(_shown(*each).quoted for each in _said_last(_last_lines(reading))[-1:])


def _last_lines(reading: Reading) -> list[tuple[int, str]]:
    """The last lines that are not empty, with their numbers."""
    return list(zip(reading.tail_numbers, reading.tail, strict=True))


def around(root: Finding, reading: Reading) -> list[str]:
    """What may say more than the root line, or instead of it: those next to it, other errors, what is called one, the
    last that matters, and where each of these begins to say it."""
    kept = sorted(
        {**dict(_last_lines(reading)), **{each.line: each.text for each in reading.near}, root.line: root.text}.items()
    )
    at = next(place for place, each in enumerate(kept) if each[0] == root.line)
    next_to_it = kept[max(0, at - LINES_NEXT) : at + LINES_NEXT + 1]
    errors = [(each.line, each.text) for each in reading.findings if each.weight is not Weight.TRAILS]
    last = [each for each in kept if MATTERS.search(each[1])][-LINES_NEXT:]
    others = [each for each in dict.fromkeys(_reasons(kept, reasons_alone=True)) if each[0] != root.line][:REASONS]
    begins = _begins(kept, {root.line, *(number for number, _ in others)}, root.line)
    called = [each for each in kept if _CALLED.match(each[1])][:REASONS]
    told = [*begins, *last, *others, *called, *errors[:LINES_NEXT], *next_to_it]
    return [f"near line {number}: {text}" for number, text in sorted(dict(told).items())]


def _begins(kept: Sequence[tuple[int, str]], told: set[int], root: int) -> Iterator[tuple[int, str]]:
    """The first line of the paragraph that holds the root line; what was printed right before a traceback, or before a
    line that only says that something failed; the line before one that goes on in the middle of a sentence."""
    paragraph = None
    for before, (number, text) in pairwise([(0, ""), *kept]):
        if paragraph is None or number - before[0] > 1:
            paragraph = (number, text)
        if number == root:
            yield paragraph
        goes_on = number in told and text[:1].islower()
        if before[0] and (goes_on or _TRACEBACK.match(text) or _BARE.search(text.rstrip("* "))):
            yield before
