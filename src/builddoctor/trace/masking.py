"""Mask what looks like a credential, before it reaches a trace or a screen.

Covers: arguments (``mask_argv``), addresses in free text (``mask_text``), and lines of a build's log in the forms in
which tools print credentials: headers, variables, flags, JSON, netrc, and tokens that their issuers make recognisable
(``mask_line``). In a line, masking too much is better than too little.

``mask_text`` and ``mask_line`` take time linear in the text's length, since the text is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "****"

_NAMED = re.compile(
    r"(?i)(?P<name>(?:^|[-_./&?\s,;])[\w-]*(?:token|passw(?:or)?d|passwd|secret|api[-_]?key|credential|auth)[\w-]*\s*[=:]\s*)"
    r"(?P<value>[^\s&,;]+)"
)
_FLAG = re.compile(r"(?i)\A--?[\w-]*(?:token|passw(?:or)?d|passwd|secret|api[-_]?key|credential)[\w-]*\Z")
_WHOLE = re.compile(
    r"(?is)\A(?P<name>(?:--?)?[\w.-]*(?:token|passw(?:or)?d|passwd|secret|api[-_]?key|credential|auth)[\w-]*[=:]\s*)\S.*\Z"
)
_SECRET_NAMES = ("token", "password", "passwd", "secret", "api_key", "api-key", "apikey", "credential", "auth")
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^/\s]+@")

_LETTERS = "[A-Za-z0-9]"
_NAME = (
    r"(?:token|passw(?:or)?d|passwd|passphrase|secret|api[-_]?key|access[-_]?key|private[-_]?key|credential|signature"
    r"|authentication|auth(?![a-z]))"
)
_VALUE = r"[^\s\"'`&,;(){}<>]{1,4000}"
_PLAIN = r"(?!(?:\d{1,9}|true|false|on|off|yes|no|none|null|\*{4})(?![^\s\"'`&,;:(){}<>]))"
"""-DTOKENS_PER_BLOCK=128 says what was built."""

_OF_GITLAB = "(?:pat|oas|dt|rtr?|cbt|ptt|ft|imt|agent|wt|soat|ffct)"
_TOKENS = re.compile(
    rf"(?<!{_LETTERS})(?:gh[a-z]_{_LETTERS}{{16,255}}|github_pat_\w{{16,255}}|gl{_OF_GITLAB}-[\w-]{{16,255}}"
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
_LINE_NAMED = re.compile(
    rf"(?i)(?P<name>(?<![\w-])[\w-]{{0,60}}?{_NAME}[\w-]{{0,40}}(?:'\s{{0,4}}:\s{{0,4}}[\"']|\"?\s{{0,4}}[:=]\s{{0,4}}[\"']?))"
    rf"{_PLAIN}{_VALUE}"
)
_LINE_FLAG = re.compile(
    rf"(?i)(?P<name>(?<![\w-])--?[\w-]{{0,60}}?{_NAME}[\w-]{{0,40}}\s{{1,4}}[\"']?)(?!-){_PLAIN}{_VALUE}"
)
_NETRC = re.compile(rf"(?i)(?P<name>\blogin\s{{1,4}}\S{{1,200}}\s{{1,4}}password\s{{1,4}}){_VALUE}")
_KEY_LINE = re.compile(r"\A[A-Za-z0-9+/]{60,80}={0,2}\Z")
"""a line of a private key"""


def mask_argv(argv: Sequence[str]) -> list[str]:
    """The same arguments with passwords, tokens and the user part of addresses replaced by ``****``."""
    masked: list[str] = []
    hide_next = False
    for argument in argv:
        if hide_next and not argument.startswith("-"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = _FLAG.match(argument) is not None
        if (whole := _WHOLE.match(argument)) is not None:
            masked.append(whole["name"] + MASK)
            continue
        clean = _USER_INFO.sub(rf"\g<scheme>{MASK}@", argument)
        masked.append(_NAMED.sub(rf"\g<name>{MASK}", clean))
    return masked


def mask_text(text: str) -> str:
    """Free text with the user part of addresses, and secret parameters in them, replaced by ``****``."""
    # With the blanks between them, so that nothing else changes.
    return "".join(_mask_word(word) if "://" in word else word for word in re.split(r"(\s+)", text))


def mask_line(text: str) -> str:
    """The same line, with what looks like a credential replaced by ``****``."""
    if _KEY_LINE.match(text):
        return MASK
    text = mask_text(text)
    if _AWS_ID.search(text):
        text = _AWS_SECRET.sub(MASK, _AWS_ID.sub(MASK, text))
    text = _TOKENS.sub(MASK, text)
    for pattern in (_HEADER, _SCHEME, _NETRC, _LINE_NAMED, _LINE_FLAG):
        text = pattern.sub(rf"\g<name>{MASK}", text)
    return text


def _mask_word(word: str) -> str:
    scheme, *addresses = word.split("://")
    return "://".join([scheme, *(_mask_address(address) for address in addresses)])


def _mask_address(address: str) -> str:
    host, slash, rest = address.partition("/")
    if "@" in host:
        # A password may hold at signs: the host begins after the last.
        host = f"{MASK}@{host.rpartition('@')[2]}"
    path, mark, query = (host + slash + rest).partition("?")
    return path + mark + "&".join(map(_mask_parameter, query.split("&")))


def _mask_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    secret = equals and any(word in name.lower() for word in _SECRET_NAMES)
    return f"{name}={MASK}" if secret else parameter
