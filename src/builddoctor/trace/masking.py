"""Mask what looks like a credential in arguments and in what programs print, before it reaches a trace or a screen."""

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
    """Free text with the user part of addresses, and secret parameters in them, replaced by ``****``.

    Takes time linear in the text's length, whatever that is: it may come from a stranger.
    """
    # With the blanks between them, so that nothing else changes.
    return "".join(_mask_word(word) if "://" in word else word for word in re.split(r"(\s+)", text))


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
