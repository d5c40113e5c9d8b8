"""Source distributions in a package index: which there are, with their hashes.

Covers: the simple API, as HTML (PEP 503) and JSON (PEP 691), of any index that pip is configured for.
Does *not* cover: wheels. A build was asked for.
"""

from __future__ import annotations

import re
import urllib.parse
from html.parser import HTMLParser

import msgspec
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from builddoctor.errors import SourceNotFoundError
from builddoctor.sources.web import NotThereError, Web, shown

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_SHA256 = re.compile(r"(?:^|[#&])sha256=(?P<digest>[0-9a-f]{64})")


class Sdist(msgspec.Struct, frozen=True, kw_only=True):
    """One source distribution."""

    version: Version
    name: str
    """of the file"""
    url: str
    sha256: str = ""
    yanked: bool = False


class _File(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    yanked: bool | str = False


class _Page(msgspec.Struct):
    files: list[_File]


def find_sdist(web: Web, indexes: tuple[str, ...], package: str, version: str) -> Sdist:
    """The source distribution of this version; the newest release where ``version`` is empty.

    Raises SourceNotFoundError: the package, or the version, or the network is not there.
    """
    wanted = _version(version) if version else None
    found: list[Sdist] = []
    missing = 0
    trouble: SourceNotFoundError | None = None
    for index in indexes:
        url = f"{index}/{canonicalize_name(package)}/"
        try:
            found += _sdists(web, url + ("index.html" if url.startswith("file:") else ""), package)
        except NotThereError:
            missing += 1
        except SourceNotFoundError as error:
            trouble = error
    if not found and trouble is not None:
        raise trouble
    if not found:
        where = "pip's package index" if missing else "any package index: pip names none"
        raise SourceNotFoundError(
            f"no source distribution of {package} in {where}",
            hint="give the sources yourself: --source PATH, or --source URL of its repository",
        )
    if wanted is not None:
        matching = [each for each in found if each.version == wanted]
        if not matching:
            newest = ", ".join(str(each) for each in sorted({each.version for each in found}, reverse=True)[:8])
            raise SourceNotFoundError(
                f"{package} has no source distribution of version {version}", hint=f"there are: {newest}"
            )
        return matching[0]
    released = [each for each in found if not each.version.is_prerelease and not each.yanked]
    return max(released or found, key=lambda each: each.version)


def _sdists(web: Web, url: str, package: str) -> list[Sdist]:
    content, kind = web.page(url, accept=_ACCEPT)
    if kind == _JSON:
        try:
            files = msgspec.json.decode(content, type=_Page).files
        except msgspec.MsgspecError as error:
            raise SourceNotFoundError(f"{shown(url)} is not a page of a package index") from error
        entries = [(each.filename, each.url, each.hashes.get("sha256", ""), bool(each.yanked)) for each in files]
    else:
        parser = _Links()
        parser.feed(content.decode(errors="replace"))
        entries = parser.found
    found = []
    for name, link, digest, yanked in entries:
        try:
            project, version = parse_sdist_filename(name)
        except (InvalidSdistFilename, InvalidVersion):
            continue
        if project == canonicalize_name(package):
            address = urllib.parse.urljoin(url, link.partition("#")[0])
            found.append(Sdist(version=version, name=name, url=address, sha256=digest, yanked=yanked))
    return found


class _Links(HTMLParser):
    """Names, addresses and hashes of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        link = said.get("href")
        if tag != "a" or not link:
            return
        path = urllib.parse.unquote(urllib.parse.urlsplit(link).path)
        digest = _SHA256.search(link)
        name = path.rsplit("/", 1)[-1]
        self.found.append((name, link, digest["digest"] if digest else "", "data-yanked" in said))


def _version(text: str) -> Version:
    try:
        return Version(text.removeprefix("v"))
    except InvalidVersion as error:
        raise SourceNotFoundError(
            f"--version {text}: releases in a package index are numbered, as in 2.8.3",
            hint="for a branch or commit name the repository: --source URL --version BRANCH",
        ) from error
