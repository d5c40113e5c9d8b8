"""Files from the network (and ``file://``): whole or not at all, going on where an earlier try was cut off.

Covers: proxies and certificates as the environment and pip name them, sizes bounded, sha256 checked; source
distributions in a package index, by its simple API as HTML (PEP 503) or JSON (PEP 691).
Does *not* cover: git, which fetches by itself (``gates.git``); wheels, which pip fetches (``gates.pip``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
import urllib.parse
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from builddoctor.core.errors import SourceNotFoundError, SourceUnsafeError
from builddoctor.core.units import printable
from builddoctor.trace.masking import mask_text

if TYPE_CHECKING:
    import httpx
    from pypi_simple import ProjectPage

TIMEOUT_S = 60.0
"""without a byte"""
MOST_PAGE_BYTES = 64 * 1024**2
MOST_FILE_BYTES = 10 * 1024**3
MOST_REDIRECTS = 10
_CHUNK_BYTES = 1024 * 1024

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"


class Sdist(msgspec.Struct, frozen=True, kw_only=True):
    """One source distribution."""

    version: Version
    name: str
    """of the file"""
    url: str
    sha256: str = ""
    yanked: bool = False
    requires_python: str = ""
    """versions of Python that it is for, such as ``>=3.12``; empty: all"""

    def fits(self, python: str) -> bool:
        """It is for this version of Python. True where the version is empty or the rule cannot be read, as for pip."""
        try:
            return not python or SpecifierSet(self.requires_python).contains(python, prereleases=True)
        except InvalidSpecifier:
            return True


class NotThereError(SourceNotFoundError):
    """The sources cannot be had: the server answered, and has no such page."""


class Web:
    """``env``: for certificates; proxies are those of the process's own environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # It takes a fifth of a second to load, and most commands fetch nothing.
        import httpx

        named = (env.get(name, "") for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
        authorities = next((name for name in named if name and os.path.exists(name)), None)
        self._client = httpx.Client(
            verify=ssl.create_default_context(cafile=authorities),
            timeout=TIMEOUT_S,
            limits=httpx.Limits(max_keepalive_connections=0),
            headers={"User-Agent": "builddoctor", "Accept-Encoding": "identity"},
        )

    def page(
        self, url: str, *, accept: str = "*/*", most_bytes: int = MOST_PAGE_BYTES, allowed: Callable[[str], bool]
    ) -> tuple[bytes, str]:
        """A small file and its content type; no redirect is followed that is not ``allowed``.

        Raises SourceNotFoundError.
        """
        with _told(url), self._open(url, {"Accept": accept}, allowed) as answer:
            content = b""
            for chunk in answer.chunks:
                content += chunk
                if len(content) > most_bytes:
                    raise ValueError(f"it is larger than {most_bytes // 1024**2} MiB")
            return content, answer.kind

    def file(self, url: str, target: Path, *, sha256: str = "") -> str:
        """Fetch into ``target``; gives its sha256.

        Raises SourceNotFoundError, SourceUnsafeError for another hash than ``sha256``, OSError for a full disk.
        What was fetched before it was cut off stays in a file beside it, and is gone on with.
        """
        if sha256 and target.is_file() and sha256_of(target) == sha256:
            # Fetched by a try that ended while it was unpacked.
            return sha256
        part = target.with_name(target.name + ".part")
        digest = self._fetch(url, part)
        if sha256 and digest != sha256:
            part.unlink(missing_ok=True)
            raise SourceUnsafeError(
                f"{shown(url)} is not what the index says: sha256 {digest[:16]}… and not {sha256[:16]}…",
                hint="try again; if it stays so, the file is changed on its way: ask your network's administrators",
            )
        os.replace(part, target)
        return digest

    def sdists(self, index: str, package: str) -> list[Sdist]:
        """The source distributions of a package in one index. Raises SourceNotFoundError."""
        url = f"{index}/{canonicalize_name(package)}/" + ("index.html" if index.startswith("file:") else "")
        content, kind = self.page(url, accept=_ACCEPT, allowed=over_http)
        try:
            page = _parsed(package, content, url, is_json=kind == _JSON)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise SourceNotFoundError(f"{shown(url)} is not a page of a package index") from error
        found = []
        for each in page.packages:
            try:
                project, version = parse_sdist_filename(each.filename)
            except (InvalidSdistFilename, InvalidVersion):
                continue
            if project == canonicalize_name(package):
                found.append(
                    Sdist(
                        version=version,
                        name=each.filename,
                        url=each.url,
                        sha256=each.digests.get("sha256", ""),
                        yanked=bool(each.is_yanked),
                        requires_python=each.requires_python or "",
                    )
                )
        return found

    def _fetch(self, url: str, part: Path) -> str:
        have = part.stat().st_size if part.exists() else 0
        with _told(url), contextlib.ExitStack() as stack:
            headers = {"Range": f"bytes={have}-"} if have else {}
            answer = stack.enter_context(self._open(url, headers, over_http))
            if answer.status == 416:
                # It was whole already, or is another file now.
                part.unlink()
                answer = stack.enter_context(self._open(url, {}, over_http))
            with part.open("ab" if have and answer.status == 206 else "wb") as file:
                size = file.tell()
                expected = size + answer.length if answer.length is not None else None
                for chunk in answer.chunks:
                    size += len(chunk)
                    if size > MOST_FILE_BYTES:
                        raise ValueError("it has no end")
                    file.write(chunk)
            if expected is not None and size < expected:
                raise ValueError(f"it broke off after {size} of {expected} bytes; the next try goes on from there")
        return sha256_of(part)

    @contextlib.contextmanager
    def _open(self, url: str, headers: Mapping[str, str], allowed: Callable[[str], bool]) -> Iterator[_Answer]:
        """Raises NotThereError, SourceNotFoundError, ValueError, and what httpx raises."""
        if url.startswith("file:"):
            with Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).open("rb") as file:
                kind = "text/html" if url.endswith(".html") else ""
                yield _Answer(status=200, kind=kind, chunks=iter(lambda: file.read(_CHUNK_BYTES), b""))
            return
        if not over_http(url):
            raise ValueError("not a URL of http or https")
        request = self._client.build_request("GET", url, headers=dict(headers))
        for _ in range(MOST_REDIRECTS):
            response = self._client.send(request, stream=True)
            with contextlib.closing(response):
                following = response.next_request
                if following is None:
                    yield _answer_of(response)
                    return
            request = following
            if not allowed(str(request.url)):
                raise ValueError(f"it leads to {shown(str(request.url))}, which is not safe")
        raise ValueError("it leads from one address to the next without end")


def find_sdist(
    web: Web, indexes: Sequence[str], package: str, version: str, *, python: str, say: Callable[[str], None]
) -> Sdist:
    """The source distribution of this version; where ``version`` is empty, of the newest release for this Python.

    ``python``: its version, empty where it is not known. ``say``: hears of a newer release that is for others.
    Raises SourceNotFoundError: the package, or the version, or the network is not there, or none is for this Python.
    """
    wanted = _version(version) if version else None
    found: list[Sdist] = []
    missing = 0
    trouble: SourceNotFoundError | None = None
    for index in indexes:
        try:
            found += web.sdists(index, package)
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
        if not matching[0].fits(python):
            raise _for_others(package, matching[0], python)
        return matching[0]
    released = [each for each in found if not each.version.is_prerelease and not each.yanked] or found
    newest_of_all = max(released, key=lambda each: each.version)
    fitting = [each for each in released if each.fits(python)]
    if not fitting:
        raise _for_others(package, newest_of_all, python)
    taken = max(fitting, key=lambda each: each.version)
    if taken.version < newest_of_all.version:
        needs = printable(newest_of_all.requires_python)
        say(f"{package} {newest_of_all.version} needs Python {needs}, this is {python}: takes {taken.version}")
    return taken


def _for_others(package: str, sdist: Sdist, python: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"{package} {sdist.version} needs Python {printable(sdist.requires_python)}, and this is {python}",
        hint="activate an environment with such a Python, and build there; or name another --version",
    )


def over_http(url: str) -> bool:
    """A redirect that may be followed: never to a file of this machine."""
    return urllib.parse.urlsplit(url).scheme in ("http", "https")


def shown(url: str) -> str:
    """For a message: without what may be a password."""
    return printable(mask_text(url))[:300]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server sends, or a file."""

    status: int
    kind: str
    """its content type"""
    length: int | None = None
    chunks: Iterator[bytes]
    """as they came: nothing is decompressed"""


def _answer_of(response: httpx.Response) -> _Answer:
    if response.status_code in (404, 410):
        raise NotThereError(f"{shown(str(response.url))}: there is no such page", hint="look for the name's spelling")
    if response.status_code >= 300 and response.status_code != 416:
        said = f"{response.status_code} {printable(response.reason_phrase)}"
        raise SourceNotFoundError(f"{shown(str(response.url))}: {said}")
    length = response.headers.get("Content-Length", "")
    return _Answer(
        status=response.status_code,
        kind=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
        length=int(length) if length.isdigit() else None,
        chunks=response.iter_raw(),
    )


def _parsed(package: str, content: bytes, url: str, *, is_json: bool) -> ProjectPage:
    """Raises ValueError and others for what is no page of an index."""
    # It loads requests and pydantic: half a second.
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if is_json:
                return ProjectPage.from_json_data(msgspec.json.decode(content), url)
            return ProjectPage.from_html(package, content, base_url=url)
        except UnsupportedRepoVersionError as error:
            raise ValueError(str(error)) from error


def _version(text: str) -> Version:
    try:
        return Version(text.removeprefix("v"))
    except InvalidVersion as error:
        raise SourceNotFoundError(
            f"--version {text}: releases in a package index are numbered, as in 2.8.3",
            hint="for a branch or commit name the repository: --source URL --version BRANCH",
        ) from error


def sha256_of(path: Path) -> str:
    """Of a file, in hexadecimal. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Trouble with the network, in our words."""
    import httpx

    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotThereError(f"{shown(url)}: there is no such file") from error
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, TimeoutError, ConnectionError, ValueError) as error:
        raise SourceNotFoundError(f"{shown(url)}: {printable(str(error)) or type(error).__name__}") from error
