"""Keys are private, never overwritten, and an address without them is this machine's alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from builddoctor.cluster.addresses import checked_address, checked_store_address, store_beside, tls_for
from builddoctor.cluster.keys import make_keys, security_for
from builddoctor.core.errors import ClusterError, UsageError


def test_keys_are_the_owners_alone(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "keys")
    assert sorted(path.name for path in made) == ["ca-key.pem", "ca.pem", "client.pem", "node.pem", "server.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    before = (tmp_path / "keys" / "ca.pem").read_bytes()
    with pytest.raises(ClusterError, match="holds the keys of a cluster already"):
        make_keys(tmp_path / "keys")
    assert (tmp_path / "keys" / "ca.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("tls://build-host", "tls://build-host:8786"),
        ("tls://10.0.0.1:99", "tls://10.0.0.1:99"),
        ("tls://[fd00::1]:99/", "tls://[fd00::1]:99"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"),
        ("tcp://localhost", "tcp://localhost:8786"),
        ("tcp://[::1]:5", "tcp://[::1]:5"),
    ],
)
def test_addresses(given: str, found: str) -> None:
    assert checked_address(given) == found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("tcp://10.0.0.1:8786", "not encrypted"),
        ("tcp://0.0.0.0:8786", "not encrypted"),
        ("tcp://build-host:8786", "not encrypted"),
        ("build-host:8786", "no address"),
        ("build-host", "no address"),
        ("tls://", "no address"),
        ("tls://a:b", "no address"),
        ("https://a", "no address"),
        ("tls://a/b", "no address"),
        ("tls://[::1", "no address"),
        ("tls://user:word@a:1", "no address"),
        ("tls://a:1?x=1", "no address"),
        ("tls://a:1#x", "no address"),
        ("", "no address"),
    ],
)
def test_addresses_that_are_none(given: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as raised:
        checked_address(given)
    assert "tls://" in raised.value.hint


def test_a_stores_address_has_its_own_port_and_its_own_words() -> None:
    assert checked_store_address("tls://build-host") == "tls://build-host:8787"
    assert checked_store_address("tcp://127.0.0.1:9") == "tcp://127.0.0.1:9"
    with pytest.raises(UsageError, match="read and write your results") as raised:
        checked_store_address("tcp://build-host:8787")
    assert raised.value.hint.startswith("tls://build-host:8787")
    with pytest.raises(UsageError, match="no address of a store") as raised:
        checked_store_address("https://build-host")
    assert "--store" in raised.value.hint


def test_a_store_beside_a_meeting_point_has_the_next_port() -> None:
    assert store_beside("tls://[::1]:8786") == "tls://[::1]:8787"
    assert store_beside("tcp://127.0.0.1:0") == "tcp://127.0.0.1:0"
    with pytest.raises(UsageError, match="no port is left"):
        store_beside("tcp://127.0.0.1:65535")


def test_keys_that_are_none_are_said(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    (tmp_path / "keys" / "client.pem").write_text("no key")
    with pytest.raises(ClusterError, match="cannot be read"):
        tls_for("tls://a:1", tmp_path / "keys", "client")
    assert tls_for("tcp://127.0.0.1:1", tmp_path, "client") is None


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"ca\.pem and node\.pem .* are not in"):
        security_for("tls://a:1", tmp_path, "node")
    assert security_for("tcp://127.0.0.1:1", tmp_path, "node") is None
    make_keys(tmp_path / "keys")
    (tmp_path / "keys" / "node.pem").unlink()
    with pytest.raises(ClusterError, match=r"^node\.pem .* is not in"):
        security_for("tls://a:1", tmp_path / "keys", "node")
