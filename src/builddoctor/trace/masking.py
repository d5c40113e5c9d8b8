"""Mask what looks like a credential in arguments, before it reaches a trace or a screen."""

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
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^/\s]+@")


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
