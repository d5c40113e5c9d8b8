"""A recipe from an address: https, or http of this machine itself.

Covers: what may be asked, redirects included; size. Does *not* cover: keeping it; every use asks again.
"""

from __future__ import annotations

import ipaddress
import posixpath
import urllib.parse
from collections.abc import Mapping

from builddoctor.errors import RecipeError, SourceNotFoundError
from builddoctor.recipes.bounds import LARGEST_FILE
from builddoctor.sources.web import Web, shown


def fetch(url: str, env: Mapping[str, str]) -> str:
    """The text there. Raises RecipeError."""
    if not safe(url):
        raise RecipeError(
            f"{shown(url)}: recipes come over https, so that nobody changes them on their way",
            hint="use https://…, or fetch the file yourself and name it",
        )
    try:
        content, kind = Web(env).small_file(url, most_bytes=LARGEST_FILE, allowed=safe)
    except SourceNotFoundError as error:
        raise RecipeError(str(error), hint=error.hint or "fetch the file yourself and name it") from error
    if kind == "text/html":
        raise RecipeError(
            f"{shown(url)} is a web page, not a recipe", hint="use the address of the raw file: https://….toml"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RecipeError(f"{shown(url)} is no text", hint="a recipe is a TOML file") from error


def safe(url: str) -> bool:
    """Whether a recipe, or a redirect to one, may be asked there."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _loopback(host)))


def file_name(url: str) -> str:
    """The last part of its path."""
    return posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(url).path)) or "recipe.toml"


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
