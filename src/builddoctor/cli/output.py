"""What all commands do with their results: data to stdout, everything else to stderr, files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from builddoctor.core.errors import BuildDoctorError, FolderNotWritableError
from builddoctor.core.units import escaped, printable_tree
from builddoctor.ui.layout import ASCII, UNICODE, Signs, signs_for

if TYPE_CHECKING:
    from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""Of every command that prints facts; ``docs/reference`` has a schema of each answer."""

LEAST_CELLS, USUAL_CELLS, MOST_CELLS = 40, 100, 400

_UNSEEN = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What a terminal takes for a control character, or shows as nothing: in JSON an escape says the same."""

_BEYOND_ASCII = re.compile("[\x7f-\U0010ffff]")

_LAYOUT = re.compile(r"([\n\t])")


def print_error(error: BuildDoctorError) -> None:
    """What happened, and the next step."""
    print_notes([f"builddoctor: {error}", *([f"hint: {error.hint}"] if error.hint else [])])


def print_notes(lines: Iterable[str]) -> None:
    """Lines for a person, on stderr. A terminal that is gone is no error.

    Of control characters only the end of a line and the tab get through: names of files may hold any.
    """
    signs = signs_for(os.environ) if sys.stderr.isatty() else UNICODE
    for line in lines:
        clean = "".join(part if part in ("\n", "\t") else escaped(part) for part in _LAYOUT.split(signs.ours(line)))
        with contextlib.suppress(OSError, ValueError):
            print(clean, file=sys.stderr, flush=True)  # noqa: T201


def print_data(text: str) -> None:
    """What was asked for, on stdout; where that has too few characters, the others as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))  # noqa: T201


def print_page(lines: Iterable[Text]) -> None:
    """Lines with styles, on stdout, with the signs that it can show. No line is broken anew.

    Colour on a terminal only, and none with NO_COLOR.
    """
    # Only here: a command that prints no page does not wait for it.
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    encoding = sys.stdout.encoding or "utf-8"
    signs = page_signs()
    for line in lines:
        if not signs.unicode and not line.plain.isascii():
            # One cell for one cell, as far as that goes: columns stay where they are.
            plain = line.plain.replace("…", "~").replace("→", ">")
            line.plain = signs.words(plain) if console.is_terminal else signs.ours(plain)
        if not console.is_terminal or console.no_color:
            print_data(line.plain)
        else:
            line.plain = line.plain.encode(encoding, "replace").decode(encoding)
            console.print(line)


def print_answer(value: object, page: Callable[[], Iterable[Text]] | str, *, json: bool, pretty: bool = False) -> None:
    """What a command was asked: as JSON, or as its page, or in a few words. ``pretty``: JSON of more than one line."""
    if json:
        print_data(json_text(value, pretty=pretty))
    elif isinstance(page, str):
        print_data(page)
    else:
        print_page(page())


def page_signs() -> Signs:
    """What stdout can show; into a file or a pipe, whatever its encoding can say."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return signs_for(os.environ) if unicode else ASCII


def names_are_whole() -> bool:
    """Names in tables are not cut: no terminal shows them, and no COLUMNS asks for it."""
    return not sys.stdout.isatty() and not os.environ.get("COLUMNS")


def page_width() -> int:
    """Cells of a line on stdout: the terminal's, else COLUMNS, else 100."""
    return min(MOST_CELLS, max(LEAST_CELLS, shutil.get_terminal_size((USUAL_CELLS, 24)).columns))


def json_text(value: object, *, pretty: bool = False) -> str:
    """Structs as JSON; what is no UTF-8 in a file name stands there as an escape."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(printable_tree(msgspec.to_builtins(value)))
    text = (msgspec.json.format(encoded, indent=2) if pretty else encoded).decode()
    if not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf"):
        return _BEYOND_ASCII.sub(_json_escape, text)
    return _UNSEEN.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def write_file(
    target: Path, content: bytes, *, example: str = "page.html", executable: bool = False, make_folder: bool = False
) -> None:
    """All of it or nothing. Raises FolderNotWritableError, whose hint names ``example``."""
    with replacing(
        target, hint=f"name a file in a folder that you may write: `-o {example}`", make_folder=make_folder
    ) as new:
        new.write_bytes(content)
        if executable and new.is_file():
            new.chmod(new.stat().st_mode | 0o111)


@contextlib.contextmanager
def replacing(
    target: Path,
    *,
    hint: str = "name a file in a folder that you may write, with room in it",
    make_folder: bool = False,
) -> Iterator[Path]:
    """A new file that takes the target's place, and its mode, when it is whole. Raises FolderNotWritableError."""
    # Only here: most commands write no file.
    import tempfile

    new: Path | None = None
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        # A link stays a link.
        target = target.resolve() if target.is_symlink() else target
        if target.exists() and not target.is_file() and not target.is_dir():
            # Nothing can take the place of a device or a pipe.
            yield target
            return
        mode = target.stat().st_mode & 0o777 if target.is_file() else 0o666 & ~_umask()
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
        new = Path(name)
        os.fchmod(descriptor, mode)
        os.close(descriptor)
        yield new
        new.replace(target)
    except OSError as error:
        raise FolderNotWritableError(f"cannot write {target}: {error.strerror or error}", hint=hint) from error
    finally:
        if new is not None:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
