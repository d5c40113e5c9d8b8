"""What the site needs beyond MkDocs: links that lead out of docs/, and folders in the navigation.

Pages are written for GitHub, where a link to a source file works. On the site such a link leads to the repository,
where it is known (``BUILDDOCTOR_REPOSITORY``, or GitHub's own variables in its jobs), and is plain text elsewhere. A
link to what is not there stays as it is, and fails the strict build. GitHub draws Mermaid's graphs; here that would
take a script from another server, and the one that there is repeats the table below it. GitHub takes the backslash from
an escaped bar in a table's code; Python-Markdown leaves it.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_CODE = re.compile(r"<code>[^<]*</code>")
_GRAPH = re.compile(r"^```mermaid\n.*?^```\n", re.DOTALL | re.MULTILINE)
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
    """Links out of docs/ lead to the repository; graphs are left out."""
    return _GRAPH.sub("", _LINK.sub(lambda link: _outward(link, page.file.src_uri), markdown))


def on_page_content(html: str, **_: Any) -> str:
    """A bar in code is a bar."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), html)


def _outward(link: re.Match[str], source: str) -> str:
    path, _, anchor = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link[2])).partition("#")
    if path.startswith(("docs/", "..")) or not (ROOT / path).exists():
        return link[0]
    if not repository():
        return link[1]
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"[{link[1]}]({repository()}/{kind}/HEAD/{path}{'#' * bool(anchor)}{anchor})"
