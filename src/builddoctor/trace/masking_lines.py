"""Mask what looks like a credential in a line of a log, wherever it stands in it.

Covers: the forms in which tools print them: addresses, headers, variables, flags, JSON, netrc, and what issuers of
tokens make recognisable. A line that is shown is better masked once too often. Does *not* cover: arguments and what
programs of ours print (``trace.masking``).

Takes time linear in the line's length, whatever that is: it may come from a stranger.
"""

from __future__ import annotations

import re

from builddoctor.trace.masking import MASK, mask_text

_LETTERS = "[A-Za-z0-9]"
_NAME = (
    r"(?:token|passw(?:or)?d|passwd|passphrase|secret|api[-_]?key|access[-_]?key|private[-_]?key|credential|signature"
    r"|authentication|auth(?![a-z]))"
)
_VALUE = r"[^\s\"'`&,;(){}<>]{1,4000}"
_PLAIN = r"(?!(?:\d{1,9}|true|false|on|off|yes|no|none|null|\*{4})(?![^\s\"'`&,;:(){}<>]))"
"""-DTOKENS_PER_BLOCK=128 says what was built."""

_TOKENS = re.compile(
    rf"(?<!{_LETTERS})(?:gh[a-z]_{_LETTERS}{{16,255}}|github_pat_\w{{16,255}}|gl[a-z]{{2,5}}-[\w-]{{16,255}}"
    rf"|hf_{_LETTERS}{{16,255}}|pypi-[\w-]{{16,255}}|npm_{_LETTERS}{{16,255}}|dckr_[a-z]{{2,5}}_[\w-]{{16,255}}"
    r"|nvapi-[\w-]{16,255}|sk-[\w-]{16,255}|xox[a-z]-[\w-]{10,255}|AIza[\w-]{30,60}"
    r"|eyJ[\w-]{8,4000}(?:\.[\w-]{0,4000}){1,4})"
)
"""GitHub, GitLab, Hugging Face, PyPI, npm, Docker, NVIDIA, OpenAI, Slack, Google, and JSON web tokens."""

_AWS_ID = re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,20}\b")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_HEADER = re.compile(
    rf"(?i)(?P<name>authorization[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?)(?:(?:bearer|basic|token|digest|negotiate)\s{{1,4}})?{_VALUE}"
)
_SCHEME = re.compile(r"(?P<name>\b(?:Bearer|Basic|bearer)\s{1,4})[\w.~+/=-]{16,4000}")
_NAMED = re.compile(
    rf"(?i)(?P<name>(?<![\w-])[\w-]{{0,60}}?{_NAME}[\w-]{{0,40}}(?:'\s{{0,4}}:\s{{0,4}}[\"']|\"?\s{{0,4}}[:=]\s{{0,4}}[\"']?))"
    rf"{_PLAIN}{_VALUE}"
)
_FLAG = re.compile(
    rf"(?i)(?P<name>(?<![\w-])--?[\w-]{{0,60}}?{_NAME}[\w-]{{0,40}}\s{{1,4}}[\"']?)(?!-){_PLAIN}{_VALUE}"
)
_NETRC = re.compile(rf"(?i)(?P<name>\blogin\s{{1,4}}\S{{1,200}}\s{{1,4}}password\s{{1,4}}){_VALUE}")
_KEY_LINE = re.compile(r"\A[A-Za-z0-9+/]{60,80}={0,2}\Z")
"""a line of a private key"""


def mask_line(text: str) -> str:
    """The same line, with what looks like a credential replaced by ``****``."""
    if _KEY_LINE.match(text):
        return MASK
    text = mask_text(text)
    if _AWS_ID.search(text):
        text = _AWS_SECRET.sub(MASK, _AWS_ID.sub(MASK, text))
    text = _TOKENS.sub(MASK, text)
    for pattern in (_HEADER, _SCHEME, _NETRC, _NAMED, _FLAG):
        text = pattern.sub(rf"\g<name>{MASK}", text)
    return text
