"""Who may take part in a cluster: a certificate authority of its own, and certificates that it signed.

Covers: making them, finding them, and the transport's settings (TLS both ways: each side shows a certificate). An
address without TLS is for this machine alone.
Does *not* cover: passing them on: that is the user's, with ssh or a shared home. A node needs ``ca.pem`` and
``node.pem``, a user's machine ``ca.pem`` and ``client.pem``; ``ca-key.pem`` signs new ones and stays where it is.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed.security import Security

from builddoctor.cluster.fleet import EXAMPLES
from builddoctor.core.errors import ClusterError, UsageError
from builddoctor.system.user_folders import usual_folder

PORT = 8786
"""Dask's own."""

VALID_DAYS = 365
ROLES = ("server", "node", "client")
_BEFORE = timedelta(minutes=10)
"""Clocks differ."""


def keys_folder(named: str) -> Path:
    """Where the keys are: as named, else in the user's settings."""
    return Path(named) if named else usual_folder("config") / "cluster"


def make_keys(folder: Path, *, days: int = VALID_DAYS, now: datetime | None = None) -> list[Path]:
    """A new authority and a certificate for each role; gives the files. Never over others: raises ClusterError."""
    if (folder / "ca.pem").exists():
        raise ClusterError(
            f"{folder} holds the keys of a cluster already",
            hint=f"`builddoctor cluster keys --keys {folder}-2` makes others; without the old ones no node is let in",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _make(folder, now or datetime.now(timezone.utc), days)
    except OSError as error:
        raise ClusterError(
            f"cannot write {folder}: {error.strerror}", hint="name another folder with `--keys`"
        ) from error


def _make(folder: Path, now: datetime, days: int) -> list[Path]:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("builddoctor cluster")
    authority = (
        _certificate(ca_name, ca_name, ca_key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    written = [_write(folder / "ca.pem", authority.public_bytes(serialization.Encoding.PEM))]
    written.append(_write(folder / "ca-key.pem", _private(ca_key)))
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _certificate(_name(f"builddoctor {role}"), ca_name, key, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        both = _private(key) + signed.public_bytes(serialization.Encoding.PEM)
        written.append(_write(folder / f"{role}.pem", both))
    return written


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path


def checked_address(address: str) -> str:
    """``tls://HOST:PORT``; the port may be left out. Raises UsageError: without TLS only this machine's own."""
    parts = urlsplit(address)
    hint = f"an address is that of `builddoctor cluster serve`; --cluster takes {EXAMPLES}"
    try:
        port, host = PORT if parts.port is None else parts.port, parts.hostname or ""
    except ValueError:
        raise UsageError(f"{address} is no address of a cluster", hint=hint) from None
    if parts.scheme not in ("tls", "tcp") or not host or parts.path not in ("", "/"):
        raise UsageError(f"{address} is no address of a cluster", hint=hint)
    if parts.scheme == "tcp" and not _is_loopback(host):
        raise UsageError(
            f"{address} is not encrypted, and anybody who reaches it could run programs there",
            hint=f"tls://{host}:{port}, with the keys of `builddoctor cluster keys`",
        )
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def security_for(address: str, folder: Path, role: str) -> Security | None:
    """The transport's settings for one side; None without TLS. Raises ClusterError where keys are missing."""
    if not address.startswith("tls://"):
        return None
    own, authority = folder / f"{role}.pem", folder / "ca.pem"
    missing = [path.name for path in (authority, own) if not path.is_file()]
    if missing:
        raise ClusterError(
            f"{' and '.join(missing)} of the cluster's keys {_are(missing)} not in {folder}",
            hint="copy them from where `builddoctor cluster keys` was run, or name their folder with `--keys`",
        )
    named = {"server": "scheduler", "node": "worker", "client": "client"}[role]
    return Security(
        require_encryption=True,
        tls_ca_file=str(authority),
        **{f"tls_{named}_cert": str(own), f"tls_{named}_key": str(own)},
    )


def _are(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
