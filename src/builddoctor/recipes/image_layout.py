"""A recipe kept in an OCI image layout: ``oci:FOLDER[:TAG][//NAME.toml]``.

Covers: layouts on disk (``index.json`` and ``blobs/``), as ``oras``, ``skopeo`` and BuildKit write them, where the
recipe is a layer of its own whose title (``org.opencontainers.image.title``) ends in ``.toml``; its sha256 and size
are checked. Read only; no registry is asked.
Does *not* cover: a recipe inside an image's file system, which is a file like any other once the image is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from builddoctor.errors import RecipeError
from builddoctor.recipes.bounds import LARGEST_FILE
from builddoctor.units import escaped

PREFIX = "oci:"
TITLE = "org.opencontainers.image.title"
TAG = "org.opencontainers.image.ref.name"
MOST_MANIFEST_BYTES = 4 * 1024 * 1024
MOST_MANIFESTS = 100
MOST_RECIPES = 100

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_HINT = "oci:FOLDER//NAME.toml, where FOLDER holds index.json and blobs/"


class _Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    annotations: dict[str, str] | None = None

    def said(self, name: str) -> str:
        return (self.annotations or {}).get(name, "")


class _Index(msgspec.Struct, frozen=True):
    manifests: list[_Descriptor]


class _Manifest(msgspec.Struct, frozen=True):
    layers: list[_Descriptor] = []


_Layer = tuple[str, str, int]
"""title, digest, size"""

_Json = TypeVar("_Json", _Index, _Manifest)


def recipe_in_layout(wanted: str, cwd: Path) -> tuple[str, str]:
    """Title and text of the one recipe that ``wanted`` names. Raises RecipeError."""
    titles = [title for title, _, _ in _found(wanted, cwd, any_name=True)]
    fitting = _found(wanted, cwd)
    if len(fitting) != 1:
        raise _which(wanted, titles, several=bool(fitting))
    return _read(wanted, cwd, fitting[0])


def recipes_in_layout(wanted: str, cwd: Path) -> list[tuple[str, str]]:
    """Titles and texts of all recipes that ``wanted`` names. Raises RecipeError."""
    return [_read(wanted, cwd, layer) for layer in _found(wanted, cwd)[:MOST_RECIPES]]


def _found(wanted: str, cwd: Path, *, any_name: bool = False) -> list[_Layer]:
    """Each once, however many images have it."""
    top, tag, name = _parts(wanted, cwd)
    with _told(wanted):
        found = dict.fromkeys((layer.said(TITLE), layer.digest, layer.size) for layer in _layers(top, tag))
    return [layer for layer in found if any_name or not name or name in (layer[0], os.path.basename(layer[0]))]


def _read(wanted: str, cwd: Path, layer: _Layer) -> tuple[str, str]:
    title, digest, size = layer
    with _told(wanted):
        return title, _blob(_parts(wanted, cwd)[0], digest, size, LARGEST_FILE).decode()


def _parts(wanted: str, cwd: Path) -> tuple[Path, str, str]:
    """Folder, tag, name."""
    place, _, name = wanted.removeprefix(PREFIX).partition("//")
    folder, colon, tag = place.rpartition(":")
    if not colon or "/" in tag:
        folder, tag = place, ""
    return Path(cwd, os.path.expanduser(folder)), tag, name


@contextlib.contextmanager
def _told(wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecipeError(f"{escaped(wanted)}: {escaped(str(reason))}", hint=_HINT) from error


def _which(wanted: str, titles: list[str], *, several: bool) -> RecipeError:
    listed = ", ".join(escaped(title)[:100] for title in titles[:10])
    what = "more than one recipe fits" if several else "no such recipe" if titles else "no layer is a recipe"
    return RecipeError(f"{escaped(wanted)}: {what}{': ' if listed else ''}{listed}", hint=_HINT)


def _layers(top: Path, tag: str) -> Iterator[_Descriptor]:
    """Layers with the title of a recipe, of all manifests, or of those with the tag."""
    index = _json(_content(top / "index.json", MOST_MANIFEST_BYTES), _Index)
    waiting = [each for each in index.manifests if not tag or each.said(TAG) == tag]
    if tag and not waiting:
        raise ValueError(f"no image has the tag {tag}")
    for _ in range(MOST_MANIFESTS):
        if not waiting:
            return
        manifest = waiting.pop(0)
        content = _blob(top, manifest.digest, manifest.size, MOST_MANIFEST_BYTES)
        if manifest.media_type in _INDEXES:
            waiting.extend(_json(content, _Index).manifests)
        else:
            layers = _json(content, _Manifest).layers
            yield from (layer for layer in layers if layer.said(TITLE).endswith(".toml"))
    raise ValueError(f"more than {MOST_MANIFESTS} manifests")


def _blob(top: Path, digest: str, size: int, most: int) -> bytes:
    """Raises ValueError for one that is too large, or not what its digest says."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"not a sha256 digest: {digest[:100]}")
    if size > most:
        raise ValueError(f"blob {match[1][:12]}… is larger than {most // 1024**2} MiB")
    content = _content(top / "blobs" / "sha256" / match[1], most)
    if len(content) != size or hashlib.sha256(content).hexdigest() != match[1]:
        raise ValueError(f"blob {match[1][:12]}… is damaged: another size or sha256")
    return content


def _content(path: Path, most: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is no plain file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path.name} is larger than {most // 1024**2} MiB")
    return content


def _json(content: bytes, kind: type[_Json]) -> _Json:
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error
