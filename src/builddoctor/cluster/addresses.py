"""Addresses of a cluster and of its store, and the keys that each side shows.

An address without TLS is for this machine alone. Needs neither Dask nor cryptography.
Does *not* cover: making keys, or Dask's settings (``cluster.keys``).
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from builddoctor.cluster.fleet import EXAMPLES
from builddoctor.core.errors import ClusterError, UsageError
from builddoctor.system.user_folders import usual_folder

PORT = 8786
"""Dask's own."""

STORE_PORT = PORT + 1
LAST_PORT = 65535


def keys_folder(named: str) -> Path:
    """Where the keys are: as named, else in the user's settings."""
    return Path(named) if named else usual_folder("config") / "cluster"


def checked_address(address: str) -> str:
    """A cluster's: ``tls://HOST:PORT``; the port may be left out. Raises UsageError."""
    hint = f"an address is that of `builddoctor cluster serve`; --cluster takes {EXAMPLES}"
    return _checked(address, "a cluster", PORT, hint=hint, danger="run programs there")


def checked_store_address(address: str) -> str:
    """A store's, in the same way. Raises UsageError."""
    hint = f"`--store tls://HOST:{STORE_PORT}`, as `builddoctor cluster serve --store FOLDER` says it, or a folder"
    return _checked(address, "a store", STORE_PORT, hint=hint, danger="read and write your results")


def _checked(address: str, what: str, usual: int, *, hint: str, danger: str) -> str:
    """Without TLS it must be this machine's own."""
    try:
        parts = urlsplit(address)
        port, host = usual if parts.port is None else parts.port, parts.hostname or ""
    except ValueError:
        raise UsageError(f"{address} is no address of {what}", hint=hint) from None
    more = "@" in parts.netloc or parts.path not in ("", "/") or parts.query or parts.fragment
    if parts.scheme not in ("tls", "tcp") or not host or more:
        raise UsageError(f"{address} is no address of {what}", hint=hint)
    if parts.scheme == "tcp" and not _is_loopback(host):
        raise UsageError(
            f"{address} is not encrypted, and anybody who reaches it could {danger}",
            hint=f"tls://{host}:{port}, with the keys of `builddoctor cluster keys`",
        )
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """Of a checked address."""
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 0


def with_port(address: str, port: int) -> str:
    """A checked address with another port."""
    return f"{address.rpartition(':')[0]}:{port}"


def store_beside(address: str) -> str:
    """Where the store of a meeting point is: at the next port; at any one, where that is at any. Raises UsageError."""
    _, port = host_and_port(address)
    if port == LAST_PORT:
        raise UsageError(
            f"no port is left for a store after that of {address}",
            hint=f"a lower one, such as `--listen {with_port(address, PORT)}`",
        )
    return with_port(address, port + 1 if port else 0)


def key_files(folder: Path, role: str) -> tuple[Path, Path]:
    """The authority's certificate, and the role's own with its key. Raises ClusterError where one is missing."""
    authority, own = folder / "ca.pem", folder / f"{role}.pem"
    missing = [path.name for path in (authority, own) if not path.is_file()]
    if missing:
        raise ClusterError(
            f"{' and '.join(missing)} of the cluster's keys {_are(missing)} not in {folder}",
            hint="copy them from where `builddoctor cluster keys` was run, or name their folder with `--keys`",
        )
    return authority, own


def tls_for(address: str, folder: Path, role: str) -> ssl.SSLContext | None:
    """Both sides show a certificate of the authority; None without TLS. Raises ClusterError."""
    if not address.startswith("tls://"):
        return None
    authority, own = key_files(folder, role)
    try:
        purpose = ssl.Purpose.CLIENT_AUTH if role == "server" else ssl.Purpose.SERVER_AUTH
        context = ssl.create_default_context(purpose, cafile=str(authority))
        context.load_cert_chain(own)
    except OSError as error:
        raise ClusterError(
            f"the keys in {folder} cannot be read: {error.strerror or error}",
            hint="copy them once more from where `builddoctor cluster keys` was run",
        ) from error
    # Any certificate of the authority will do: machines get and lose their names.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _are(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
