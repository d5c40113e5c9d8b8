"""Paths of submodules in the text of build files: who names which.

Covers: a path as it is, in pieces (``"a" / "b"``, ``join("a", "b")``) and behind variables. One pass over each text
finds the last part of any path, and what stands before it is compared: the time does not grow with the number of paths.
Does *not* cover: conditions (``sensors.cmake_text``, ``sensors.setup_py``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_HITS = 20_000
"""in all texts together: what stands before so many words is looked at"""

_WORD = re.compile(r"[\w.+@~-]+")
_QUOTES = "\"'"
_BLANK = " \t\r\n"
_MOST_BLANKS = 200


def names_path(text: str, path: str) -> bool:
    """``text`` names the path."""
    return bool(first_naming({"": text}, {path: [path]}))


def first_naming(
    texts: Mapping[str, str], spellings: Mapping[str, Iterable[str]], *, prefix: str = ""
) -> dict[str, str]:
    """For each key of ``spellings`` the first of the ``texts`` (by their paths) that names one of its spellings.

    A spelling also counts as seen from where the file stands; ``prefix``: the path of the texts' own folder.
    """
    by_last: dict[str, list[str]] = {}
    odd: list[str] = []
    for key, paths in spellings.items():
        for last in {path.rpartition("/")[2] for path in paths}:
            if _WORD.fullmatch(last) and not last.endswith("."):
                by_last.setdefault(last, []).append(key)
            else:
                odd.append(key)
    found: dict[str, str] = {}
    left = MOST_HITS
    for file, text in texts.items():
        here = "/".join(filter(None, (prefix, *file.split("/")[:-1])))
        spelled = {key: _seen_from(here, paths) for key, paths in spellings.items() if key not in found}
        found |= {key: file for key in odd if any(_holds(text, path) for path in spelled.get(key, ()))}
        for key, end in _ends(text, by_last):
            if key in found:
                continue
            left -= 1
            if left < 0:
                return found
            if any(_named_at(text, end, path.split("/")) for path in spelled[key]):
                found[key] = file
    return found


def _ends(text: str, by_last: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """(key, where the word ends) for each word that is the last part of one of its paths."""
    for word in _WORD.finditer(text) if by_last else ():
        last = word[0].rstrip(".")
        for key in by_last.get(last, ()):
            yield key, word.start() + len(last)


def leads_to(written: str, path: str, prefix: str, unknown: re.Pattern[str]) -> bool:
    """``written``, as a file in the folder at ``prefix`` says it, is ``path`` or lies below it, for certain.

    ``unknown``: what stands for a variable; before the path it is taken for the folder, or the top of the checkout.
    """
    parts = re.sub(r"/+", "/", written).split("/")
    count, behind_variable = 0, False
    while count < len(parts) and (parts[count] in ("", ".", "..") or unknown.search(parts[count])):
        behind_variable = behind_variable or bool(unknown.search(parts[count]))
        count += 1
    ups = [part for part in parts[:count] if part == ".."]
    rest = "/".join([*ups, *parts[count:]])
    if not parts[count:] or ("/" not in path and count == 0 and len(parts) < 2):
        return False
    places = {posixpath.normpath(posixpath.join(prefix, rest))}
    if behind_variable and not ups:
        places.add(posixpath.normpath(rest))
    return any(place == path or place.startswith(f"{path}/") for place in places)


def below(path: str, prefix: str) -> str | None:
    """``path`` as seen from ``prefix``; None when it is not below."""
    if not prefix:
        return path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None


def _seen_from(here: str, paths: Iterable[str]) -> set[str]:
    listed = list(paths)
    return {*listed, *(seen for path in listed if (seen := below(path, here)))}


def _holds(text: str, path: str) -> bool:
    """As it is, for a path that ends in no word."""
    place = text.find(path)
    if place < 0:
        return False
    end = place + len(path)
    if "/" not in path:
        return _looks_like_a_path(text, place, end)
    return not re.match(r"[\w-]", text[end : end + 1]) and not re.match(r"[\w.-]", text[max(0, place - 1) : place])


def _named_at(text: str, end: int, parts: Sequence[str]) -> bool:
    """The last part ends at ``end``: the others stand before it."""
    start = end - len(parts[-1])
    if text[start:end] != parts[-1] or re.match(r"[\w-]", text[end : end + 1]):
        return False
    if len(parts) == 1:
        return _looks_like_a_path(text, start, end)
    for part in reversed(parts[:-1]):
        before = _before_separator(text, start)
        if before is None or not text.endswith(part, 0, before):
            return False
        start = before - len(part)
    return start == 0 or re.match(r"[\w.-]", text[start - 1]) is None


def _before_separator(text: str, place: int) -> int | None:
    """Where the part before this one ends: a slash or a comma between them, with quotes and blanks; else None."""
    place = _skip(text, place, _QUOTES, 1)
    place = _skip(text, place, _BLANK, _MOST_BLANKS)
    if place == 0 or text[place - 1] not in "/,":
        return None
    place = _skip(text, place - 1, _BLANK, _MOST_BLANKS)
    return _skip(text, place, _QUOTES, 1)


def _skip(text: str, place: int, what: str, most: int) -> int:
    stop = max(0, place - most)
    while place > stop and text[place - 1] in what:
        place -= 1
    return place


def _looks_like_a_path(text: str, start: int, end: int) -> bool:
    """One word says little by itself."""
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if before and before in "/\"'" and after[:1] and after[0] in "/\"'":
        return True
    if re.match(r"/[\w.]", after) and not re.match(r"[\w.-]", before):
        return True
    opened = re.search(r"add_subdirectory\(\s*\Z", text[max(0, start - 60) : start])
    return opened is not None and re.match(r"[)\s]", after) is not None
