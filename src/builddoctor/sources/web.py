"""Files from the network (and ``file://``): whole or not at all, going on where an earlier try was cut off.

Covers: proxies and certificates as the environment and pip name them, sizes bounded, sha256 checked.
Does *not* cover: git, which fetches by itself (``intercept.git``).
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from builddoctor.errors import SourceNotFoundError, SourceUnsafeError
from builddoctor.trace.masking import mask_text
from builddoctor.units import printable

TIMEOUT_S = 60.0
"""without a byte"""
MOST_PAGE_BYTES = 64 * 1024**2
MOST_FILE_BYTES = 10 * 1024**3
_CHUNK_BYTES = 1024 * 1024
_SCHEMES = ("http", "https", "file")


class Web:
    """``env``: for proxies (urllib reads those of the process) and certificates."""

    def __init__(self, env: Mapping[str, str]) -> None:
        named = (env.get(name, "") for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"))
        authorities = next((name for name in named if name and os.path.exists(name)), None)
        self._context = ssl.create_default_context(cafile=authorities)

    def page(self, url: str, *, accept: str = "*/*") -> tuple[bytes, str]:
        """A small text and its content type. Raises SourceNotFoundError."""
        with _told(url), self._open(url, {"Accept": accept}) as answer:
            content = answer.read(MOST_PAGE_BYTES + 1)
            kind = answer.headers.get_content_type()
        if len(content) > MOST_PAGE_BYTES:
            raise SourceNotFoundError(f"{shown(url)} is larger than a page of an index", hint="look at it in a browser")
        return content, kind

    def small_file(self, url: str, *, most_bytes: int, allowed: Callable[[str], bool]) -> tuple[bytes, str]:
        """A small file and its content type; no redirect is followed that is not ``allowed``.

        Raises SourceNotFoundError.
        """
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._context), _CarefulRedirects(allowed)
        )
        request = urllib.request.Request(url, headers={"User-Agent": "builddoctor"})  # noqa: S310
        with _told(url), opener.open(request, timeout=TIMEOUT_S) as answer:
            content = answer.read(most_bytes + 1)
            kind = answer.headers.get_content_type()
        if len(content) > most_bytes:
            raise SourceNotFoundError(f"{shown(url)} is larger than {most_bytes // 1024**2} MiB")
        return content, kind

    def file(self, url: str, target: Path, *, sha256: str = "") -> str:
        """Fetch into ``target``; gives its sha256.

        Raises SourceNotFoundError, SourceUnsafeError for another hash than ``sha256``, OSError for a full disk.
        What was fetched before it was cut off stays in a file beside it, and is gone on with.
        """
        if sha256 and target.is_file() and _digest(target) == sha256:
            # Fetched by a try that ended while it was unpacked.
            return sha256
        part = target.with_name(target.name + ".part")
        digest = self._fetch(url, part)
        if sha256 and digest != sha256:
            part.unlink(missing_ok=True)
            raise SourceUnsafeError(
                f"{shown(url)} is not what the index says: sha256 {digest[:16]}… and not {sha256[:16]}…",
                hint="try again; if it stays so, somebody changed it on its way: ask your network's people",
            )
        os.replace(part, target)
        return digest

    def _fetch(self, url: str, part: Path) -> str:
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with _told(url):
            try:
                answer = self._open(url, headers)
            except urllib.error.HTTPError as error:
                if error.code != 416:
                    raise
                # It was whole already, or is another file now.
                part.unlink()
                have, answer = 0, self._open(url, {})
            with answer, part.open("ab" if have and answer.status == 206 else "wb") as file:
                size = file.tell()
                wanted = answer.headers.get("Content-Length")
                expected = size + int(wanted) if wanted and wanted.isdigit() else None
                while chunk := answer.read(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > MOST_FILE_BYTES:
                        raise ValueError("it has no end")
                    file.write(chunk)
            if expected is not None and size < expected:
                raise ValueError(f"it broke off after {size} of {expected} bytes; the next try goes on from there")
        return _digest(part)

    def _open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        if urllib.parse.urlsplit(url).scheme not in _SCHEMES:
            raise ValueError("not a URL of http or https")
        request = urllib.request.Request(url, headers={"User-Agent": "builddoctor", **headers})  # noqa: S310
        # What a ``file:`` URL gives has no status, and no place for one.
        return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context)  # type: ignore[no-any-return]  # noqa: S310


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows those that are allowed."""

    def __init__(self, allowed: Callable[[str], bool]) -> None:
        self._allowed = allowed

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not self._allowed(newurl):
            raise ValueError(f"it leads to {shown(newurl)}, which is not safe")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _digest(path: Path) -> str:
    """sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class NotThereError(SourceNotFoundError):
    """The sources cannot be had: the server answered, and has no such page."""


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Trouble with the network, in our words."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NotThereError(f"{shown(url)}: there is no such page", hint="look for the name's spelling") from error
        raise SourceNotFoundError(f"{shown(url)}: {error.code} {printable(error.reason)}") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, FileNotFoundError | IsADirectoryError):
            raise NotThereError(f"{shown(url)}: there is no such file") from error
        raise SourceNotFoundError(f"{shown(url)}: {printable(str(error.reason))}") from error
    except (http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError, ValueError) as error:
        raise SourceNotFoundError(f"{shown(url)}: {printable(str(error))}") from error


def shown(url: str) -> str:
    """For a message: without what may be a password."""
    return printable(mask_text(url))[:300]
