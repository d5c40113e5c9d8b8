"""What the site needs beyond MkDocs, for pages that are written for GitHub.

Covers: links out of docs/, folders in the navigation, the bar in a table's code, short code and pictures.
Does *not* cover: what the pages say, and what they look like (docs/site.css).

On GitHub a link to a source file works. On the site it leads to the repository, where that is known
(``BUILDDOCTOR_REPOSITORY``, or GitHub's own variables in its jobs), and is plain text elsewhere. A link to what is
not there stays as it is, and fails the strict build.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHORT = 24
_CELLS = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_SHORT_CODE = re.compile(rf"<code>([^<]{{1,{SHORT}}})</code>")
_PICTURE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')
_LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^]]*\])*)\]\((\.\./[^)\s]*)\)")


def repository() -> str:
    """Address of the repository, or nothing."""
    of_job = "/".join(os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
    return (os.environ.get("BUILDDOCTOR_REPOSITORY") or of_job.strip("/")).rstrip("/")


def on_config(config: Any) -> None:
    """``folder/`` in the navigation becomes the pages of that folder."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))


def _expanded(node: Any, docs: Path) -> Any:
    if isinstance(node, list):
        return [_expanded(each, docs) for each in node]
    if isinstance(node, dict):
        return {title: _expanded(each, docs) for title, each in node.items()}
    if not node.endswith("/"):
        return node
    pages = sorted((docs / node).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    return [f"{node}{page.name}" for page in pages]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the repository; GitHub wants a bar in a table escaped, in code too, and MkDocs not."""
    markdown = _CELLS.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)
    return _LINK.sub(lambda link: _outward(link, page.file.src_uri), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Short code is not broken between lines, as `--` and `memory` would be; a picture can be opened by itself."""
    html = _SHORT_CODE.sub(r'<code class="short">\1</code>', html)
    return _PICTURE.sub(r'<a href="\1">\g<0></a>', html)


def _outward(link: re.Match[str], source: str) -> str:
    path, _, anchor = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link[2])).partition("#")
    if path.startswith(("docs/", "..")) or not (ROOT / path).exists():
        return link[0]
    if not repository():
        return link[1]
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"[{link[1]}]({repository()}/{kind}/HEAD/{path}{'#' * bool(anchor)}{anchor})"
