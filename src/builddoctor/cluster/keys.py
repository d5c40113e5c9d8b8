"""Who may take part in a cluster: a certificate authority of its own, and certificates that it signed.

Covers: making them, and the settings of Dask's transport (TLS both ways: each side shows a certificate).
Does *not* cover: addresses, and where keys are (``cluster.addresses``); or passing them on: that is the user's, with
ssh or a shared home. A node needs ``ca.pem`` and ``node.pem``, a user's machine ``ca.pem`` and ``client.pem``;
``ca-key.pem`` signs new ones and stays where it is.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed.security import Security

from builddoctor.cluster.addresses import key_files
from builddoctor.core.errors import ClusterError

VALID_DAYS = 365
ROLES = ("server", "node", "client")
_BEFORE = timedelta(minutes=10)
"""Clocks differ."""


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


def security_for(address: str, folder: Path, role: str) -> Security | None:
    """The transport's settings for one side; None without TLS. Raises ClusterError where keys are missing."""
    if not address.startswith("tls://"):
        return None
    authority, own = key_files(folder, role)
    named = {"server": "scheduler", "node": "worker", "client": "client"}[role]
    return Security(
        require_encryption=True,
        tls_ca_file=str(authority),
        **{f"tls_{named}_cert": str(own), f"tls_{named}_key": str(own)},
    )
