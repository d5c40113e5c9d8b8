"""What one line of a log says by its words alone, whoever printed it, in many languages. Pure.

Covers: that something failed, is missing, is refused or demanded; that a line gives no reason; that it is a command.
Does *not* cover: texts with a known cause (``diagnose.catalogue``), what only wraps another's error
(``root_line.wrappers``), which of several lines counts (``root_line.reasons``).

Each kind of words is a pattern below. Words are listed here where lines of real logs that say why something failed, or
that do not, were taken for the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def _spoken(*phrases: str, loose: Sequence[str] = ()) -> re.Pattern[str]:
    """Any of these in whole words, in capitals or not. ``loose``: beside them, and as they are, for what has no ends of
    words: Chinese, Japanese, a part of a word."""
    return re.compile("|".join((rf"\b(?:{'|'.join(phrases)})\b", *loose)), re.IGNORECASE)


# -- something failed ------------------------------------------------------------------------------------------------


FAILS = re.compile(
    r"(?i)(?:\b|_)(?:error|fatal|failed|failure|bailing out|fehler|fehlgeschlagen|erreur|échec|échoué|erro|falló|falha"
    r"|errore|ошибка|fout|błąd)\b(?!\.[a-z]\w{0,3}\b)|错误|失败|エラー|失敗|오류"
)
"""but not as the name of a file: error.o"""

KILLED = re.compile(r"(?:[Kk]illed|[Tt]erminated|[Aa]borting|SIG(?:KILL|TERM|SEGV|ABRT|BUS|ILL))\b")

LACKS = _spoken(
    *("cannot", "can't", r"could ?n[o']t", "unable to", "not found", "no such", "missing", "denied", "invalid"),
    *("unsupported", "not supported", "undefined", "unrecognized", "unknown", "mismatch", "refused", "aborted"),
    *("incompatible", "too old", "too new", "does not exist"),
    r"(?:is|was) not (?:set|defined|installed|available)",
)
"""something is not there, or is refused"""

LACKS_TOO = _spoken(
    "not (?:set|defined|installed|available|detected|compatible|recogni[sz]ed|satisfied|working)",
    *("sorry", "giving up", r"not \w{3,20} successfully"),
    "(?:does not|doesn't|do not|don't) (?:match|work|support|have|contain|provide)",
    *("too (?:low|small)", r"no [\w .+/-]{1,40} (?:found|detected|available)"),
    *("conflicts? with", r"problems? \w+ing"),
)
"""where something failed: the end of a log that went well may say as much"""

NEGATES = _spoken(
    r"(?:did|does|do|is|was|were|are|has|have|could|would|will)(?: not|n['\u2019]t)",
    *("not (?:found|ok|enough|allowed|valid|possible|permitted)", "no (?:such|space|rule|valid|matching)"),
    *("without success", "illegal", "exceed(?:s|ed)", "truncated", "timed out", "time-?out", "forbidden"),
    *(r"conflict\w*", r"crash\w*", "broken", r"corrupt\w*", "gave up", "shut ?down"),
    *("(?:longer|larger|bigger) than", "expired", "rejected", r"overflow\w*", "duplicate", "ambiguous", "cancell?ed"),
    *("stopped", "(?:was|been) terminated", "build terminated"),
    # German, French
    *("nicht", "kein(?:e[nrs]?)?", "konnte"),
    *("introuvable", "impossible", "non défini", "aucun", r"indéfini\w*"),
    # Russian
    *(r"не (?:удалось|найден\w*|осталось|определен\w*|определён\w*|может)", "нет"),
    # Spanish, Portuguese, Italian, Polish
    *(r"no se (?:pudo|puede|encontr\w*)", r"indefinid\w*"),
    *(r"não (?:foi|encontr\w*|pode)", r"non (?:trovat\w*|definit\w*|può|riuscit\w*)"),
    "nie (?:można|znaleziono|istnieje)",
    loose=(
        r"\bERR!",
        *("未定义", "未定義", "未找到", "找不到", "无法", "無法", "没有", "沒有", "不能", "不支持", "不支援", "不存在"),
        *("停止", "終止", "终止", "太长", "过长", "過長"),
        *("できません", "見つかりません", "ありません", "없습니다", "찾을 수", "않"),
    ),
)
"""right before a step that failed, in many languages: something is not as it should be"""

OVER = _spoken(
    *(r"(?:did|could|was|were|has|have)(?: not|n['\u2019]t)", "not enough", "exceeded", "does not contain"),
    *("longer than the maximum", "truncated", "timed out", "crashed", "g[ai]v(?:e|ing) up", "shutdown signal"),
    "(?:been|was) (?:terminated|cancell?ed|killed|shut down)",
    "(?:job|build|step|operation) (?:terminated|cancell?ed)",
    *(r"konnte nicht\w*", r"nicht (?:gefunden|möglich|definiert)\w*"),
    *(r"introuvable\w*", r"impossible de\w*", r"non défini\w*"),
    *(r"no se (?:pudo|encontr)\w*", r"não (?:foi possível|encontrad)\w*"),
    *(r"non (?:trovat|è stato possibile)\w*", r"nie można\w*"),
    r"не (?:удалось|найден|осталось|определ)\w*",
    loose=(
        *(r"\bERR!", r"^cancell?ed[.!]?$"),
        *("未定义", "未定義", "未找到", "找不到", "无法", "無法"),
        *("できませんでした", "見つかりません", "찾을 수 없"),
    ),
)
"""the same of the last line of a log, in words that hardly end one that went well"""

MATTERS = re.compile(
    r"(?i)error|fatal|fail|kill|abort|cannot|not found|no such|denied|exception|undefined|exit (?:code|status)"
)
"""it may be about the failure: whether it is, nobody knows"""

CALLED = re.compile(r"\W{0,3}(?:ERROR|Error|error|FATAL|Fatal|fatal|E)\b")
"""it begins with the word"""


# -- a line that demands, advises, or gives no reason ----------------------------------------------------------------


ASKS = re.compile(
    r"(?i)^(?!.*(?:\bto (?:use|enable|get|build|run|view|see|generate)\b|\bif you\b|\boptional|\brecommend|\bwarn"
    r"|\bfor (?:more|better|best)\b)).*(?:\bplease (?:\w+ ){0,3}install\b|\bmust be installed\b)|^\+{1,3} exit [1-9]"
)
"""the last line of a script that did not go on"""

GAVE_UP = re.compile(
    r"(?i)^(?:remote:)?\W{0,12}"
    r"(?:the following .{1,60} (?:are|were) (?:not (?:satisfied|met|found|installed)|missing)\b"
    r"|(?:installation|configuration|configure|set-?up|the build) (?:has )?(?:failed|aborted)\b|giving up\b"
    r"|push rejected\b|do not know how to unpack\b|[1-9]\d{0,3} packages? failed: )"
)
"""said by scripts of projects, above what they say of the machine"""

DEMANDS = _spoken(
    r"please (?:\w+ ){0,4}(?:install|upgrade|update|set|specify|use|run)",
    *("(?:must|need to|have to|needs to) be", "you (?:must|need|have to|should)", "(?:is|are) (?:required|needed)"),
    *("requires", "at least", "or (?:later|newer|higher)", r">= ?\d", "only (?:works|supports?|available)"),
    *("forg[eo]t(?:ten)? to", "exiting", "quitting", "stopping"),
)
ADVISES = re.compile(r"(?:To|Please|You|If|Try|Run|See|It is recommended) \w")

BARE = re.compile(
    r"(?i)\b(?:failed|fehlgeschlagen|échoué)\b[.!)=\]\s]*(?:Took .{1,40})?$|失败。?$|失敗。?$|\]\s*failed$"
)
"""it says that something failed, and nothing of why: what does say why is the better line"""

NO_REASON = re.compile(
    r"(?i)warning\b|\bwarnings\.warn\(|\bnote: |^-- |^checking |\bError \d+$"
    r"|\b(?:no|0) (?:errors?|failures?|failed|(?:tests?|packages?) failed|broken|problems?|conflicts?|crash\w*"
    r"|duplicates?)\b"
    r"|\bexit (?:code|status)\b|\bnon-zero\b|\bunfinished jobs\b|\brecipe for target\b"
    r"|\bsee (?:above|below|also)\b|\blogs? (?:for|file)\b|errors? found in"
    r"|^(?:quitting|aborting|bailing out)[.! ]*$"
    r"|\bskipp|: In (?:\w{4,12} )?function |^# --error 0x|\becho (?:-\w{1,3} )?(?:>&2 )?[\"'\\]"
)
"""whatever else it says"""

HARMLESS = re.compile(r"hit memory(?:\+swap)? limit at least once")
"""Slurm says so of full page cache too"""


# -- who speaks ------------------------------------------------------------------------------------------------------


TOOLS_OWN = re.compile(r"(?:[\w.+-]{0,80}/){0,12}[\w.+-]{2,40}: [A-Za-z]")
"""a program names itself"""

STARTED = re.compile(
    r"[$+>#] |Run |Entering |Leaving |\[\s*\d{1,3}%\]|(?:cd|set|export|echo|mkdir|cp|rm) "
    r"|(?:[\w.+-]{0,80}/){0,12}[\w.+-]{1,40} -\w"
    r"|[A-Z][A-Z\d+_]{1,14}(?: \[\w\])? {2,12}[\w./+-]{1,200}$"
)
"""commands, and what stands for them: of automake and of Kbuild a word in capitals with a file"""
_OPTION = re.compile(r" --?[\w-]")
_LABELLED = re.compile(r"(?i)\b(?:error|fatal|warning|failed)\b ?[:\uff1a]")
LEAST_OPTIONS = 3

WORDS = re.compile(r"[^\W\d_]{2}")
"""it has one at all"""


def tells(text: str) -> bool:
    """It says that something failed; a tool that names itself may say so in other words than error."""
    return bool(FAILS.search(text) or (TOOLS_OWN.match(text) and LACKS.search(text)))


def speaks_of_failure(text: str) -> bool:
    """Something failed or is missing, and that is what the line is about."""
    return bool(FAILS.search(text) or LACKS.search(text)) and not NO_REASON.search(text)


def ends_in_trouble(text: str) -> bool:
    """Of the last line: it says of something that it is not as it should be."""
    says = FAILS.search(text) or LACKS.search(text) or OVER.search(text)
    return bool(says) and not NO_REASON.search(text) and not HARMLESS.search(text)


def is_command(text: str) -> bool:
    """A command as it was started, with many options: what stands in it names files and switches, and no reason."""
    many = bool(STARTED.match(text)) and len(_OPTION.findall(text)) >= LEAST_OPTIONS
    return many and not _LABELLED.search(text)
