"""Texts that speak about failures without being one: documentation, change logs, workflows, sources, searches. Pure.

Covers: telling them by their own beginning and by what no log has. Does *not* cover: reports of a failure that hold its
log, in an issue say: a step that failed, a status of a build tool or a traceback in it makes any text a log.
"""

from __future__ import annotations

import re

LOOKED_AT = 64 * 1024
FEW = 2
MANY = 8
"""headings: a report of a failure has few"""

_LOG = re.compile(
    r"(?m)^\W{0,8}(?:\[ *\d{1,6}/\d{1,6}\] |\[ {0,2}\d{1,3}%\] |FAILED: |Traceback \(most recent call last\):)"
    r"|^(?:g?make(?:\[\d\])?|ninja): (?:\*\*\*|Entering|error)|invoked oom-killer|oom-kill:constraint"
    r"|(?i:-- the c\w* compiler identification)"
)
_HTML = re.compile(r"(?i)\A\W{0,8}(?:<!doctype html|<html\b)")
_GIT_LOG = re.compile(r"(?m)^commit [0-9a-f]{7,40}\b.*\n(?:Merge: .*\n)?Author: ")
_HEADING = re.compile(r"(?m)^#{1,4} [^\n]{1,100}$|^[^\n]{3,80}\n(?:={3,80}|-{3,80}|~{3,80})$")
_MARKUP = re.compile(
    r"(?m)^ {0,3}(?:[-*] |\*\*|```|> |\.\. |\d\. )|::$|\[[^\]\n]{1,80}\]\([^)\n]{1,200}\)"
    r"|``[^`\n]{1,120}``|`[^`\n]{1,120}`"
)
_SOURCE = re.compile(r"\A\s*(?:\"\"\"|#!.*\bpython|import \w|from [\w.]+ import |#include\b|#pragma |/\*|// )")
_YAML = re.compile(r"(?m)^ {2,12}(?:- )?(?:runs-on|steps|uses|run|env|image|script|stage|needs|if): ?")
_SEARCH = re.compile(r"(?m)^[\w./-]{1,120}\.(?:md|rst|txt|sh|py|ya?ml|toml|json|html)[:-]\d{1,7}[:-]")
_FORMATS = re.compile(r"'%[sd]'|%s: %s|%l?d %s|%zu|\(%s\)")


def what_document(head: str) -> str:
    """What kind of document a text is by its first 64 KiB; empty when it is none, or holds a log."""
    head = head[:LOOKED_AT]
    if _LOG.search(head):
        return ""
    lines = head.count("\n") + 1
    if _HTML.search(head):
        return "a web page"
    if _GIT_LOG.match(head.lstrip()):
        return "a history of changes"
    if len(_YAML.findall(head)) >= FEW and re.match(r"\s*(?:#.*\n|\s)*[\w'\"-]{1,40}:", head):
        return "a workflow's file"
    if _few(_FORMATS, head) and len(_FORMATS.findall(head)) * 10 >= lines:
        return "a list of formats, not of messages"
    if _SEARCH.search(head) and 2 * len(re.findall(r"(?m)^[\w./-]{1,120}[:-]\d{1,7}[:-]", head)) > lines:
        return "a search through files"
    if _SOURCE.match(head):
        return "a source"
    first = _HEADING.search(head)
    if first is not None and not head[: first.start()].strip() and _few(_MARKUP, head):
        return "a document"
    if len(re.findall(r"(?m)^#{1,4} [^\n]{1,100}$", head)) >= MANY and len(_MARKUP.findall(head)) >= 2 * MANY:
        return "a document"
    return ""


def _few(pattern: re.Pattern[str], text: str) -> bool:
    return len(pattern.findall(text)) >= FEW
