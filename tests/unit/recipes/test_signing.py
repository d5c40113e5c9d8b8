"""Signatures of an index: by one key, over these bytes, for this purpose, or none at all."""

from __future__ import annotations

import base64
import stat
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from builddoctor.core.errors import ExtraMissingError, FolderNotWritableError, RecipeError, UsageError
from builddoctor.recipes import signing
from builddoctor.recipes.signing import LARGEST_SIGNATURE, SigningKey, make_key, print_of_line, read_key, sign, signer
from support.signed_index import new_key

MESSAGE = b'{"schema": 1, "recipes": []}\n'


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return new_key(tmp_path_factory.mktemp("keys") / "key")


def blob_of(signature: bytes) -> bytes:
    return base64.b64decode(b"".join(signature.splitlines()[1:-1]))


def armoured(blob: bytes) -> bytes:
    return b"-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(blob) + b"\n-----END SSH SIGNATURE-----\n"


def test_what_a_key_signed_is_known_by_its_fingerprint(key: SigningKey) -> None:
    """As the public key's file gives it; Windows' ends of lines do no harm to the signature's own text."""
    public = Path(f"{key.path}.pub").read_text()
    assert signer(MESSAGE, sign(MESSAGE, key), "x.sig") == key.print == print_of_line(public)
    assert signer(MESSAGE, sign(MESSAGE, key).replace(b"\n", b"\r\n"), "x.sig") == key.print
    assert signer(MESSAGE, armoured(blob_of(sign(MESSAGE, key))), "x.sig") == key.print


def test_a_change_of_any_byte_of_message_or_signature_is_refused(key: SigningKey) -> None:
    """Each in turn; so is a key that is put in the place of the one that signed."""
    signature = sign(MESSAGE, key)
    for at in range(len(MESSAGE)):
        changed = bytearray(MESSAGE)
        changed[at] ^= 1
        with pytest.raises(RecipeError, match="does not fit its index"):
            signer(bytes(changed), signature, "x.sig")
    blob = blob_of(signature)
    for at in range(len(blob)):
        changed = bytearray(blob)
        changed[at] ^= 1
        with pytest.raises(RecipeError, match=r"^x\.sig "):
            signer(MESSAGE, armoured(bytes(changed)), "x.sig")


def test_one_that_is_cut_off_anywhere_is_refused(key: SigningKey) -> None:
    """In its text, and in what the text holds."""
    signature = sign(MESSAGE, key)
    for end in range(len(signature) - 1):
        with pytest.raises(RecipeError):
            signer(MESSAGE, signature[:end], "x.sig")
    blob = blob_of(signature)
    for end in range(len(blob)):
        with pytest.raises(RecipeError):
            signer(MESSAGE, armoured(blob[:end]), "x.sig")


def test_a_message_that_is_cut_off_or_longer_is_refused(key: SigningKey) -> None:
    for message in (MESSAGE[:-1], MESSAGE + b" ", b""):
        with pytest.raises(RecipeError, match="does not fit its index"):
            signer(message, sign(MESSAGE, key), "x.sig")


def test_a_signature_for_another_purpose_is_none(key: SigningKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of a commit or of a file, by the same key."""
    with monkeypatch.context() as patched:
        patched.setattr(signing, "NAMESPACE", b"git")
        of_git = sign(MESSAGE, key)
    with pytest.raises(RecipeError, match="it is one of git") as refused:
        signer(MESSAGE, of_git, "x.sig")
    assert "builddoctor-recipes" in refused.value.hint


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        (b"", "begin and end"),
        (b"<html>", "begin and end"),
        (b"-----BEGIN SSH SIGNATURE-----\n\xff\xfe\n-----END SSH SIGNATURE-----\n", "no signature of an index"),
        (armoured(b"SSHSIG\0\0\0\2"), "another version"),
        (armoured(b"SSHSIG\0\0\0\1\xff\xff\xff\xff"), "cut off"),
        (armoured(b"x" * LARGEST_SIGNATURE), "begin and end"),
    ],
)
def test_what_is_no_signature_is_told_in_a_line(signature: bytes, said: str) -> None:
    with pytest.raises(RecipeError, match=said) as refused:
        signer(MESSAGE, signature, "x.sig")
    assert refused.value.exit_code == 89
    assert str(refused.value).isprintable()


def test_a_signature_with_more_in_it_is_refused(key: SigningKey) -> None:
    """Nobody can tell what that would be."""
    with pytest.raises(RecipeError, match="more in it"):
        signer(MESSAGE, armoured(blob_of(sign(MESSAGE, key)) + b"x"), "x.sig")


def test_a_key_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "key"
    make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.read_bytes()
    with pytest.raises(FolderNotWritableError, match="File exists"):
        make_key(path)
    assert path.read_bytes() == before


def test_what_cannot_sign_is_refused_with_what_can(tmp_path: Path) -> None:
    """A public key, a key of another kind, no key, no file."""
    make_key(tmp_path / "key")
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    (tmp_path / "ecdsa").write_bytes(other)
    (tmp_path / "text").write_text("hello")
    for name, said, hint in (
        ("key.pub", "is a public key", f"--key {tmp_path}/key"),
        ("ecdsa", "another kind than Ed25519", "ssh-keygen -t ed25519"),
        ("text", "is no private key", "ssh-keygen -t ed25519"),
        ("nothing", "cannot read the key", "ssh-keygen -t ed25519"),
    ):
        with pytest.raises(UsageError, match=said) as refused:
            read_key(tmp_path / name)
        assert hint in refused.value.hint


def test_without_cryptography_the_extra_is_named(key: SigningKey, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = sign(MESSAGE, key)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(ExtraMissingError) as refused:
        signer(MESSAGE, signature, "x.sig")
    assert "builddoctor[recipes]" in refused.value.hint


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa AAAAB3NzaC1yc2E=", "a b c", "\0 \0"])
def test_what_is_no_public_key_has_no_fingerprint(line: str) -> None:
    assert print_of_line(line) == ""
