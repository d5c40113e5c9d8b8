"""Recipes over https from a real server, from a folder, along with a checkout; signatures held against OpenSSH's."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from builddoctor.core.recipe import Recipe, RecipeProject
from builddoctor.recipes.recipe_text import dump
from builddoctor.recipes.signing import LARGEST_SIGNATURE
from builddoctor.recipes.travel import INDEX, SIGNATURE
from support.program import Program
from support.signed_index import entries_of, new_key, sign_index, signed_folder
from unit.demo_recipes import recipe

Done = subprocess.CompletedProcess[str]


class Site:
    """A folder of recipes that is served over https, and who asked for what."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "served"
        self.key = new_key(folder / "keys" / "key")
        self.certificate = folder / "certificate.pem"
        self.url = ""
        self.asked: list[str] = []
        self.leads_to = ""
        """where everybody is sent instead; empty for nowhere"""
        signed_folder(self.folder, self.key, demo=recipe(), flash=flash())


def flash(version: str = "2.8.3") -> Recipe:
    return recipe(project=RecipeProject(name="flash-attn", version=version))


def make_certificate(path: Path) -> None:
    """For 127.0.0.1, valid for an hour, signed by itself; with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=10))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))


@contextlib.contextmanager
def served(site: Site) -> Iterator[None]:
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            if site.leads_to:
                self.send_response(302)
                self.send_header("Location", site.leads_to)
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing is said."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site.folder)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    site.url = f"https://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def site(tmp_path: Path, program: Program) -> Iterator[Site]:
    made = Site(tmp_path)
    make_certificate(made.certificate)
    program.env.update(SSL_CERT_FILE=str(made.certificate), BUILDDOCTOR_CONFIG_DIR=str(tmp_path / "config"))
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE"):
        program.env.pop(name, None)
    program.env.update(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    with served(made):
        yield made


def pulled(program: Program) -> dict[str, str]:
    """What is on the shelf of what was pulled, by name."""
    folder = program.folder / "data" / "recipes" / "pulled"
    return {path.name: path.read_text() for path in folder.glob("*/*") if path.name != "source.json"}


def test_recipes_come_over_https_and_builds_plan_with_them(program: Program, site: Site) -> None:
    """Asked for without a key, with it, and again; only what is new is fetched."""
    refused = program.run("recipe", "pull", site.url)
    assert refused.returncode == 89
    assert site.key.print in refused.stderr
    assert site.asked == [f"/{INDEX}", f"/{SIGNATURE}"]
    assert not pulled(program)
    done = program.run("recipe", "pull", site.url, "flash_attn", "--key", site.key.print)
    assert done.returncode == 0, done.stderr
    assert pulled(program) == {"flash.toml": dump(flash())}
    site.asked.clear()
    done = program.run("recipe", "pull", site.url)
    assert done.returncode == 0, done.stderr
    assert pulled(program) == {"flash.toml": dump(flash()), "demo.toml": dump(recipe())}
    assert site.asked == [f"/{INDEX}", f"/{SIGNATURE}", "/demo.toml"]
    listed = json.loads(program.run("recipe", "list", "--json").stdout)
    assert {each["name"] for each in listed if each["origin"] == f"pulled from {site.url}"} == {"demo", "flash"}
    planned = program.run("plan", "demo", "--cores", "2", "--memory", "8GiB")
    assert planned.returncode == 0, planned.stderr
    assert "demo" in planned.stdout


def test_a_server_that_nobody_vouches_for_is_not_asked(program: Program, site: Site) -> None:
    """Its certificate comes first, then the signature."""
    del program.env["SSL_CERT_FILE"]
    done = program.run("recipe", "pull", site.url, "--key", site.key.print)
    assert done.returncode == 89
    assert "certificate" in done.stderr.lower()
    assert "SSL_CERT_FILE" in done.stderr
    assert site.asked == []


def cut_index(site: Site) -> None:
    (site.folder / INDEX).write_bytes((site.folder / INDEX).read_bytes()[:-1])


def altered_index(site: Site) -> None:
    (site.folder / INDEX).write_bytes((site.folder / INDEX).read_bytes().replace(b"2.8.3", b"2.8.4"))


def altered_recipe(site: Site) -> None:
    (site.folder / "demo.toml").write_text(dump(recipe()).replace("1000.0", "1.0"))


def cut_recipe(site: Site) -> None:
    (site.folder / "demo.toml").write_text(dump(recipe())[:-1])


def other_key(site: Site) -> None:
    signed_folder(site.folder, new_key(site.certificate.with_name("other")), demo=recipe())


def path_that_leads_out(site: Site) -> None:
    sign_index(site.folder, site.key, [{**entries_of(site.folder)[0], "name": "../../../../escaped"}])


def endless_signature(site: Site) -> None:
    (site.folder / SIGNATURE).write_bytes(b"x" * (LARGEST_SIGNATURE + 1))


def endless_recipe(site: Site) -> None:
    with (site.folder / "demo.toml").open("wb") as file:
        file.truncate(17 * 1024 * 1024)


def no_signature(site: Site) -> None:
    (site.folder / SIGNATURE).unlink()


def no_recipe(site: Site) -> None:
    (site.folder / "demo.toml").unlink()


def to_plain_http(site: Site) -> None:
    site.leads_to = "http://example.invalid/index.json"


def to_a_file(site: Site) -> None:
    site.leads_to = "file:///etc/passwd"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut_index, "does not fit its index"),
        (altered_index, "does not fit its index"),
        (altered_recipe, "demo.toml is not what was signed"),
        (cut_recipe, "demo.toml is not what was signed"),
        (other_key, "and the key named is"),
        (path_that_leads_out, "name"),
        (endless_signature, "index.json.sig"),
        (endless_recipe, "larger than 16 MiB"),
        (no_signature, "index.json.sig: there is no such page"),
        (no_recipe, "demo.toml: there is no such page"),
        (to_plain_http, "which is not safe"),
        (to_a_file, "index.json"),
    ],
)
def test_what_is_not_as_it_was_signed_is_refused(program: Program, site: Site, spoil, said: str) -> None:
    """With the one exit code, a next step, and no file of it anywhere."""
    spoil(site)
    done = program.run("recipe", "pull", site.url, "demo", "--key", site.key.print)
    assert done.returncode == 89, done.stderr
    assert done.stdout == ""
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert pulled(program) == {}
    assert not list(program.folder.rglob("escaped*"))


def test_a_folder_is_held_to_the_same(program: Program, site: Site) -> None:
    """Shared disks are written by many."""
    assert program.run("recipe", "pull", str(site.folder)).returncode == 89
    done = program.run("recipe", "pull", str(site.folder), "--key", str(site.key.path) + ".pub")
    assert done.returncode == 0, done.stderr
    assert set(pulled(program)) == {"demo.toml", "flash.toml"}
    signed_folder(site.folder, site.key, demo=recipe(), flash=flash("2.9"))
    altered_recipe(site)
    done = program.run("recipe", "pull", str(site.folder))
    assert done.returncode == 0, done.stderr
    assert pulled(program)["flash.toml"] == dump(flash("2.9"))
    assert pulled(program)["demo.toml"] == dump(recipe())


def ssh_keygen(*words: str, cwd: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *words], cwd=cwd, input=given, capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.needs_openssh
def test_openssh_and_builddoctor_read_what_the_other_signed(program: Program, site: Site) -> None:
    """Its keys and its signatures here, ours there; a key with a passphrase signs by its own program."""
    assert ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", "theirs", cwd=program.folder).returncode == 0
    assert ssh_keygen("-q", "-t", "ed25519", "-N", "locked up", "-f", "locked", cwd=program.folder).returncode == 0
    (program.folder / "demo.toml").write_text(dump(recipe()))
    done = program.run("recipe", "push", "kept", "demo.toml", "--key", "locked")
    assert (done.returncode, "has a passphrase" in done.stderr) == (64, True)
    done = program.run("recipe", "push", "kept", "demo.toml", "--key", "theirs")
    assert done.returncode == 0, done.stderr
    kept = program.folder / "kept"
    public = (program.folder / "theirs.pub").read_text()
    (program.folder / "allowed").write_text(f"keepers {public}")
    verify = (
        "-Y",
        "verify",
        "-f",
        "allowed",
        "-I",
        "keepers",
        "-n",
        "builddoctor-recipes",
        "-s",
        str(kept / SIGNATURE),
    )
    index = (kept / INDEX).read_bytes()
    assert ssh_keygen(*verify, cwd=program.folder, given=index).returncode == 0
    assert ssh_keygen(*verify, cwd=program.folder, given=index + b" ").returncode != 0
    shown = ssh_keygen("-lf", "theirs.pub", cwd=program.folder).stdout.decode().split()[1]
    assert program.run("recipe", "pull", "kept", "--key", shown).returncode == 0
    (site.folder / SIGNATURE).unlink()
    sign = ("-q", "-Y", "sign", "-n", "builddoctor-recipes", "-f", "theirs")
    assert ssh_keygen(*sign, str(site.folder / INDEX), cwd=program.folder).returncode == 0
    assert program.run("recipe", "pull", site.url, "--key", shown).returncode == 0
    (site.folder / SIGNATURE).unlink()
    wrong = ("-q", "-Y", "sign", "-n", "git", "-f", "theirs")
    assert ssh_keygen(*wrong, str(site.folder / INDEX), cwd=program.folder).returncode == 0
    done = program.run("recipe", "pull", site.url)
    assert (done.returncode, "it is one of git" in done.stderr) == (89, True)


@pytest.mark.slow
def test_a_checkout_brings_its_own_recipe(program: Program) -> None:
    """`build`, `plan` and `recipe list` find it there; what it would set is only said."""
    folder = program.folder / "checkout"
    own = folder / "builddoctor-recipes"
    own.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "2.8"\n')
    (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(demo CXX)\n")
    text = dump(recipe())
    (own / "theirs.toml").write_text(
        text.replace("[[units]]", '[[environment]]\nname = "NVTE_FRAMEWORK"\nvalue = "jax"\n\n[[units]]', 1)
    )
    listed = json.loads(program.run("recipe", "list", "--json", cwd=folder).stdout)
    assert [each["name"] for each in listed if each["origin"] == "the project's own"] == ["theirs"]
    built = program.run("build", ".", "--dry-run", cwd=folder)
    assert "recipe    theirs (measured, 2 runs, the project's own)" in built.stderr
    assert "does not get: NVTE_FRAMEWORK=jax" in built.stderr
    assert "NVTE_FRAMEWORK" not in built.stdout
    for what, cwd in ((".", folder), ("./checkout", program.folder)):
        planned = program.run("plan", what, "--cores", "2", "--memory", "8GiB", cwd=cwd)
        assert planned.returncode == 0, planned.stderr
        assert "theirs" in planned.stdout
    (own / "theirs.toml").write_text(text.replace("[[units]]", "[[hooks]]\ncommand = 'x'\n\n[[units]]", 1))
    built = program.run("build", ".", "--dry-run", cwd=folder)
    assert "recipe    " not in built.stderr
    assert "cannot be read" in program.run("recipe", "list", cwd=folder).stdout
