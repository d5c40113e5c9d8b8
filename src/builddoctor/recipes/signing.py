"""Signatures of an index of recipes, in OpenSSH's own form, by Ed25519 keys.

Covers: keys as ``ssh-keygen -t ed25519`` makes them, their fingerprints, and signatures as ``ssh-keygen -Y sign``
writes them (``PROTOCOL.sshsig`` of OpenSSH): either program reads what the other wrote. The arithmetic is
``cryptography``'s.
Does *not* cover: which key is trusted (``recipes.travel``), or other kinds of keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from builddoctor.core.errors import ExtraMissingError, FolderNotWritableError, RecipeError, UsageError
from builddoctor.core.units import escaped, shell_word

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAMESPACE = b"builddoctor-recipes"
"""What is signed: a signature by the same key on anything else is none of an index."""

LARGEST_SIGNATURE = 4096
"""bytes; those of Ed25519 have 310"""

LARGEST_KEY = 16 * 1024
"""bytes of a key's file"""

_MAGIC = b"SSHSIG"
_KIND = b"ssh-ed25519"
_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_LINE = 70
_MAKE_ONE = "make one without: ssh-keygen -t ed25519 -N '' -f recipe-key"


class SigningKey(NamedTuple):
    """A private key, and the file that it is from."""

    path: Path
    private: Ed25519PrivateKey
    public: bytes
    """as it stands in a signature"""

    @property
    def print(self) -> str:
        """Its fingerprint."""
        return fingerprint(self.public)


def require_cryptography() -> None:
    """Raises ExtraMissingError where it is not installed."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        raise ExtraMissingError(
            f"signatures of recipes need cryptography ({error})", hint="pip install 'builddoctor[recipes]'"
        ) from error


def fingerprint(public: bytes) -> str:
    """Of a public key's bytes, as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")


def print_of_line(text: str) -> str:
    """The fingerprint of a public key as it stands in a ``.pub`` file; empty for what is none of Ed25519."""
    kind, _, rest = text.strip().partition(" ")
    try:
        public = base64.b64decode(rest.split(" ")[0], validate=True)
        name, raw = _fields(public, 2)
    except (ValueError, binascii.Error):
        return ""
    return fingerprint(public) if kind.encode() == name == _KIND and len(raw) == 32 else ""


def sign(message: bytes, key: SigningKey) -> bytes:
    """What ``ssh-keygen -Y sign -n builddoctor-recipes`` would write beside it."""
    name = b"sha512"
    signature = _string(_KIND) + _string(key.private.sign(_signed(message, name)))
    body = b"".join(map(_string, (key.public, NAMESPACE, b"", name, signature)))
    text = base64.b64encode(_MAGIC + (1).to_bytes(4, "big") + body)
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return b"\n".join([_BEGIN, *lines, _END, b""])


def signer(message: bytes, signature: bytes, where: str) -> str:
    """Fingerprint of the key that signed exactly these bytes as an index of recipes.

    ``where``: of the signature, for messages. Raises RecipeError where nobody did, ExtraMissingError.
    """
    require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public, hash_name, raw_key, raw_signature = _taken_apart(signature)
    except (ValueError, binascii.Error) as error:
        raise RecipeError(
            f"{where} is no signature of an index of recipes: {error}",
            hint="an Ed25519 key signs one: `builddoctor recipe push`, or ssh-keygen -Y sign -n "
            f"{NAMESPACE.decode()} -f KEY index.json",
        ) from error
    try:
        Ed25519PublicKey.from_public_bytes(raw_key).verify(raw_signature, _signed(message, hash_name))
    except (InvalidSignature, ValueError) as error:
        raise RecipeError(
            f"{where} does not fit its index: one of them was changed, or is being renewed",
            hint="try again in a minute; if it stays so, ask who keeps the recipes, and use none of them",
        ) from error
    return fingerprint(public)


def read_key(path: Path) -> SigningKey:
    """A private key from its file. Raises UsageError for what is none, ExtraMissingError."""
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    shown = escaped(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY)
    except OSError as error:
        raise UsageError(f"cannot read the key {shown}: {error.strerror}", hint=_MAKE_ONE) from error
    if print_of_line(content.decode(errors="replace")):
        private = shell_word(str(path).removesuffix(".pub"))
        raise UsageError(f"{shown} is a public key, which signs nothing", hint=f"--key {private}")
    try:
        private_key = serialization.load_ssh_private_key(content, password=None)
    except TypeError as error:
        raise UsageError(f"the key {shown} has a passphrase, which is not asked for here", hint=_MAKE_ONE) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{shown} is no private key of OpenSSH", hint=_MAKE_ONE) from error
    if not isinstance(private_key, Ed25519PrivateKey):
        raise UsageError(f"the key {shown} is of another kind than Ed25519", hint=_MAKE_ONE)
    raw = private_key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return SigningKey(path, private_key, _string(_KIND) + _string(raw))


def make_key(path: Path) -> None:
    """A new key, for its owner alone to read, and ``.pub`` beside it; never over another.

    Raises FolderNotWritableError, ExtraMissingError.
    """
    require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file, content, mode in ((path, secret, 0o600), (path.with_name(path.name + ".pub"), public + b"\n", 0o644)):
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(content)
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write the key {escaped(str(path))}: {error.strerror}",
            hint=f"--key FILE names another; {_MAKE_ONE}",
        ) from error


def _signed(message: bytes, hash_name: bytes) -> bytes:
    """What the key itself signs."""
    digest = _HASHES[hash_name](message).digest()
    return _MAGIC + b"".join(map(_string, (NAMESPACE, b"", hash_name, digest)))


def _taken_apart(signature: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The public key, the hash's name, the key's 32 bytes and the signature's 64. Raises ValueError."""
    lines = signature.split()
    begin, end = _BEGIN.split(), _END.split()
    if len(signature) > LARGEST_SIGNATURE or lines[: len(begin)] != begin or lines[-len(end) :] != end:
        raise ValueError("it does not begin and end as OpenSSH's do")
    blob = base64.b64decode(b"".join(lines[len(begin) : -len(end)]), validate=True)
    if not blob.startswith(_MAGIC + (1).to_bytes(4, "big")):
        raise ValueError("it is of another version")
    public, namespace, _reserved, hash_name, signed = _fields(blob[len(_MAGIC) + 4 :], 5)
    if namespace != NAMESPACE:
        raise ValueError(f"it is one of {escaped(namespace[:40].decode(errors='replace')) or 'nothing'}")
    (kind, raw_key), (signed_kind, raw_signature) = _fields(public, 2), _fields(signed, 2)
    if kind != _KIND or signed_kind != _KIND:
        raise ValueError(f"its key is of the kind {escaped(kind[:40].decode(errors='replace'))}, not ssh-ed25519")
    if hash_name not in _HASHES:
        raise ValueError("its hash is neither sha256 nor sha512")
    return public, hash_name, raw_key, raw_signature


def _string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def _fields(blob: bytes, number: int) -> list[bytes]:
    """As many strings as that, and nothing after them. Raises ValueError."""
    found = []
    for _ in range(number):
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError("it is cut off")
        found.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    if blob:
        raise ValueError("there is more in it than belongs there")
    return found
