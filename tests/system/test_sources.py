"""Sources by name: from a package index and from git, both on this machine; kept, checked, offline."""

from __future__ import annotations

import errno
import hashlib
import html
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from builddoctor.core.errors import FolderNotWritableError, SourceNotFoundError, SourceUnsafeError
from builddoctor.core.project import Obtained, SourceWanted
from builddoctor.projects.sources.obtain import obtain
from support.program import clean_environment


def sdist(version: str) -> bytes:
    """A source distribution of ``demo``."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        content = f"version = {version!r}\n".encode()
        info = tarfile.TarInfo(f"demo-{version}/setup.py")
        info.size = len(content)
        packed.addfile(info, io.BytesIO(content))
    return made.getvalue()


class Index:
    """A package index: a folder behind a web server, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.kinds = dict(SimpleHTTPRequestHandler.extensions_map)
        handler = partial(_Handler, self.asked, self.kinds, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def publish(self, *versions: str, digest: str = "", needs: Mapping[str, str] = MappingProxyType({})) -> None:
        """``needs``: the Pythons that a version is for, as the index says it."""
        (self.folder / "simple" / "demo").mkdir(parents=True, exist_ok=True)
        lines = ['<a href="../../demo-9.0-py3-none-any.whl">demo-9.0-py3-none-any.whl</a>']
        for version in versions:
            content = sdist(version)
            name = f"demo-{version}.tar.gz"
            (self.folder / name).write_bytes(content)
            address = f"../../{name}#sha256={digest or hashlib.sha256(content).hexdigest()}"
            python = f' data-requires-python="{html.escape(needs[version])}"' if version in needs else ""
            lines.append(f'<a href="{address}"{python}>{name}</a>')
        (self.folder / "simple" / "demo" / "index.html").write_text("\n".join(lines))


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, asked: list[str], kinds: dict[str, str], *arguments: Any, **named: Any) -> None:
        self._asked = asked
        self.extensions_map = kinds
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        """``/to/ADDRESS`` leads there; ``/cut/FILE`` breaks off in the middle, unless the rest of it is asked for."""
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif self.path.startswith("/cut/"):
            content = Path(self.directory, self.path.removeprefix("/cut/")).read_bytes()
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
            self._asked.append(f"{self.path} from {start}")
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:] if start else content[: len(content) // 2])
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        self._asked.append(self.path)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "web"
    folder.mkdir()
    made = Index(folder)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two releases, a branch, and a submodule that is fetched by a relative address."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e@e"}
    env |= {"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e@e"}

    def git(folder: Path, *words: str) -> None:
        subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words], cwd=folder, env=env, check=True, capture_output=True
        )

    part, top = tmp_path / "part", tmp_path / "demo.git"
    for folder in (part, top):
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch", "main")
    (part / "header.h").write_text("")
    git(part, "add", ".")
    git(part, "commit", "-qm", "part")
    git(top, "submodule", "add", "../part", "3rdparty/part")
    for version in ("1.9", "1.10", "2.0rc1"):
        (top / "setup.py").write_text(f"version = {version!r}\n")
        git(top, "add", ".")
        git(top, "commit", "-qm", version)
        git(top, "tag", f"v{version}")
    return top


def got(tmp_path: Path, index: Index | None = None, *, said: list[str] | None = None, **wanted: Any) -> Obtained:
    """The sources of ``demo``, with an index of our own only, or none."""
    env = {**clean_environment(), "PIP_CONFIG_FILE": os.devnull}
    env = {name: value for name, value in env.items() if not name.startswith(("PIP_INDEX", "PIP_EXTRA", "PIP_FIND"))}
    env["PIP_INDEX_URL"] = index.url if index is not None else "http://127.0.0.1:9/simple"
    env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    say = ([] if said is None else said).append
    return obtain(
        SourceWanted(name="demo", **wanted), cache=tmp_path / "cache", env=env, python=sys.executable, say=say
    )


def version_in(obtained: Obtained) -> str:
    return (Path(obtained.folder) / "setup.py").read_text().split("'")[1]


def test_the_newest_release_is_fetched_once(tmp_path: Path, index: Index) -> None:
    """Not a wheel, not a pre-release; the second time the index is asked which is newest, and nothing is fetched."""
    index.publish("1.9", "1.10", "2.0rc1")
    first = got(tmp_path, index, package="demo")
    assert (version_in(first), first.version, first.cached) == ("1.10", "1.10", False)
    assert "sha256" in first.origin
    index.asked.clear()
    again = got(tmp_path, index, package="demo")
    assert (again.folder, again.cached) == (first.folder, True)
    assert not any(path.endswith(".tar.gz") for path in index.asked)


def test_a_version_may_be_named_and_needs_no_network_the_second_time(tmp_path: Path, index: Index) -> None:
    """Several lie side by side."""
    index.publish("1.9", "1.10")
    assert version_in(got(tmp_path, index, package="demo", version="1.9")) == "1.9"
    assert version_in(got(tmp_path, index, package="demo")) == "1.10"
    assert got(tmp_path, package="demo", version="1.9").cached
    assert version_in(got(tmp_path, package="demo", offline=True)) == "1.10"


def test_a_release_for_other_pythons_is_not_taken(tmp_path: Path, index: Index) -> None:
    """As pip does it: the newest that fits, and it is said; one that is named, and no other, is refused unfetched."""
    index.publish("1.9", "1.10", "2.0", needs={"1.10": ">=3.8", "2.0": ">=99.1", "1.9": "no rule"})
    said: list[str] = []
    assert version_in(got(tmp_path, index, said=said, package="demo")) == "1.10"
    assert f"demo 2.0 needs Python >=99.1, this is {platform.python_version()}: takes 1.10" in said
    with pytest.raises(SourceNotFoundError, match=r"demo 2\.0 needs Python >=99\.1, and this is 3\."):
        got(tmp_path, index, package="demo", version="2.0")
    assert version_in(got(tmp_path, index, package="demo", version="1.9")) == "1.9"
    index.publish("2.0", needs={"2.0": ">=99.1"})
    index.asked.clear()
    with pytest.raises(SourceNotFoundError, match="needs Python") as error:
        got(tmp_path, index, package="demo")
    assert "activate an environment" in error.value.hint
    assert not any(path.endswith(".tar.gz") for path in index.asked)


def test_another_hash_than_the_index_says_is_refused(tmp_path: Path, index: Index) -> None:
    """Nothing of it stays."""
    index.publish("1.9", digest="0" * 64)
    with pytest.raises(SourceUnsafeError, match="is not what the index says"):
        got(tmp_path, index, package="demo")
    assert not list((tmp_path / "cache").rglob("setup.py"))
    index.publish("1.9")
    assert version_in(got(tmp_path, index, package="demo")) == "1.9"


def test_what_is_not_there_is_said_with_what_is(tmp_path: Path, index: Index) -> None:
    """Versions that exist; a package that does not."""
    index.publish("1.9", "1.10")
    with pytest.raises(SourceNotFoundError, match=r"of version 3\.0") as error:
        got(tmp_path, index, package="demo", version="3.0")
    assert "1.10, 1.9" in error.value.hint
    with pytest.raises(SourceNotFoundError, match="no source distribution of other"):
        got(tmp_path, index, package="other")


def test_an_archive_that_could_not_be_unpacked_is_not_fetched_again(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full: with room there it goes on with what was fetched."""

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    index.publish("1.9")
    with monkeypatch.context() as patched:
        patched.setattr("builddoctor.projects.sources.obtain.unpack", full)
        with pytest.raises(FolderNotWritableError, match="no space left"):
            got(tmp_path, index, package="demo")
    assert version_in(got(tmp_path, index, package="demo")) == "1.9"
    assert index.asked.count("/demo-1.9.tar.gz") == 1


def test_an_index_may_be_a_folder(tmp_path: Path, index: Index) -> None:
    """``file:`` URLs, as pip takes them: a mirror on a disk."""
    index.publish("1.9", "1.10")
    index.url = (tmp_path / "web" / "simple").as_uri()
    assert version_in(got(tmp_path, index, package="demo")) == "1.10"
    with pytest.raises(SourceNotFoundError, match="no source distribution of other"):
        got(tmp_path, index, package="other")


def test_an_index_may_answer_in_json(tmp_path: Path, index: Index) -> None:
    """PEP 691; a version that was taken back is not the newest."""
    files = []
    for version in ("1.9", "1.10", "1.11"):
        content = sdist(version)
        (index.folder / f"demo-{version}.tar.gz").write_bytes(content)
        hashes = {"sha256": hashlib.sha256(content).hexdigest()}
        files.append({"filename": f"demo-{version}.tar.gz", "url": f"../../demo-{version}.tar.gz", "hashes": hashes})
    files[-1]["yanked"] = "broken"
    (index.folder / "simple" / "demo").mkdir(parents=True)
    page = {"meta": {"api-version": "1.0"}, "name": "demo", "files": files}
    (index.folder / "simple" / "demo" / "index.html").write_text(json.dumps(page))
    index.kinds[".html"] = "application/vnd.pypi.simple.v1+json"
    assert version_in(got(tmp_path, index, package="demo")) == "1.10"


@pytest.mark.parametrize("page", [b"{", b"[]", b'{"meta": {"api-version": "9.0"}, "name": "demo", "files": []}'])
def test_a_page_that_is_none_of_an_index_is_said(tmp_path: Path, index: Index, page: bytes) -> None:
    """No traceback of a library."""
    (index.folder / "simple" / "demo").mkdir(parents=True)
    (index.folder / "simple" / "demo" / "index.html").write_bytes(page)
    index.kinds[".html"] = "application/vnd.pypi.simple.v1+json"
    with pytest.raises(SourceNotFoundError, match="is not a page of a package index"):
        got(tmp_path, index, package="demo")


def test_a_download_that_broke_off_goes_on_from_there(tmp_path: Path, index: Index) -> None:
    """The second try asks for the rest alone."""
    index.publish("1.9")
    address = index.url.replace("/simple", "/cut/demo-1.9.tar.gz")
    with pytest.raises(SourceNotFoundError):
        got(tmp_path, place=address)
    assert version_in(got(tmp_path, place=address)) == "1.9"
    half = (index.folder / "demo-1.9.tar.gz").stat().st_size // 2
    assert [each for each in index.asked if " from " in each] == [
        "/cut/demo-1.9.tar.gz from 0",
        f"/cut/demo-1.9.tar.gz from {half}",
    ]


def test_a_redirect_is_followed_over_http_alone(tmp_path: Path, index: Index) -> None:
    """A server does not choose a file of this machine."""
    index.publish("1.9")
    there = index.url.replace("/simple", "")
    archive = (index.folder / "demo-1.9.tar.gz").as_uri()
    assert version_in(got(tmp_path, place=f"{there}/to/{there}/demo-1.9.tar.gz")) == "1.9"
    with pytest.raises(SourceNotFoundError, match="which is not safe"):
        got(tmp_path, place=f"{there}/to/{archive}")
    with pytest.raises(SourceNotFoundError, match="without end"):
        got(tmp_path, place=f"{there}/to//to//to//to//to//to//to//to//to//to//to//to//demo-1.9.tar.gz")


def test_without_a_network_there_are_three_ways_on(tmp_path: Path) -> None:
    """One line, for the index and for git."""
    for wanted in (
        {"package": "demo"},
        {"repository": "http://127.0.0.1:9/demo.git"},
        {"package": "demo", "offline": True},
    ):
        with pytest.raises(SourceNotFoundError) as error:
            got(tmp_path, **wanted)
        assert "\n" not in str(error.value)
        for way in ("--source PATH", "--fetch", "PIP_INDEX_URL"):
            assert way in error.value.hint


def test_without_a_network_what_the_cache_has_is_said(tmp_path: Path, index: Index) -> None:
    """Nobody has to look into the cache to know which version can be built."""
    index.publish("1.9")
    got(tmp_path, index, package="demo")
    for wanted in ({}, {"version": "1.10"}, {"version": "1.10", "offline": True}):
        with pytest.raises(SourceNotFoundError) as error:
            got(tmp_path, package="demo", **wanted)
        assert "the cache has 1.9: `--version 1.9 --offline`" in error.value.hint


def test_a_repository_comes_at_its_newest_release_with_its_submodules(tmp_path: Path, repository: Path) -> None:
    """1.10 is after 1.9, and a candidate is no release; once fetched it is not fetched again."""
    first = got(tmp_path, repository=f"file://{repository}")
    assert (version_in(first), first.version) == ("1.10", "1.10")
    assert (Path(first.folder) / "3rdparty" / "part" / "header.h").exists()
    assert "commit" in first.origin
    repository.rename(repository.with_name("away"))
    assert got(tmp_path, repository=f"file://{repository}", version="1.10").folder == first.folder
    assert got(tmp_path, repository=f"file://{repository}", offline=True).folder == first.folder


def test_a_tag_that_is_a_date_is_no_newest_release(tmp_path: Path, repository: Path) -> None:
    """Faiss has v20180223 and v1.15.0. Where all tags are dates, the newest of them is taken."""
    subprocess.run(["git", "tag", "v20180223", "v1.9"], cwd=repository, check=True)
    assert got(tmp_path, repository=f"file://{repository}").version == "1.10"
    subprocess.run(["git", "tag", "-d", "v1.10", "v1.9"], cwd=repository, check=True)
    assert version_in(got(tmp_path / "other", repository=f"file://{repository}")) == "1.9"


def test_a_tag_a_branch_or_a_commit_may_be_named(tmp_path: Path, repository: Path) -> None:
    """As ``--version``, or behind an ``@`` as pip writes it."""
    assert version_in(got(tmp_path, repository=f"file://{repository}", version="1.9")) == "1.9"
    assert version_in(got(tmp_path, repository=f"file://{repository}", version="main")) == "2.0rc1"
    assert version_in(got(tmp_path, place=f"git+file://{repository}@v1.9")) == "1.9"
    with pytest.raises(SourceNotFoundError, match="cannot fetch"):
        got(tmp_path, repository=f"file://{repository}", version="7.7")


def test_a_fetch_that_was_cut_off_goes_on(tmp_path: Path, repository: Path) -> None:
    """What is there of a tree is used; until it is whole it is nobody's."""
    (repository.parent / "part").rename(repository.parent / "gone")
    with pytest.raises(SourceNotFoundError):
        got(tmp_path, repository=f"file://{repository}")
    assert [path.suffix for path in (tmp_path / "cache" / "sources").iterdir() if path.is_dir()] == [".part"]
    (repository.parent / "gone").rename(repository.parent / "part")
    assert version_in(got(tmp_path, repository=f"file://{repository}")) == "1.10"


def test_an_archive_of_ones_own_is_unpacked_once(tmp_path: Path) -> None:
    """Changed under the same name it is another."""
    archive = tmp_path / "demo.tar.gz"
    archive.write_bytes(sdist("1.0"))
    first = got(tmp_path, place=str(archive))
    assert version_in(first) == "1.0"
    assert got(tmp_path, place=str(archive)).folder == first.folder
    archive.write_bytes(sdist("1.0.1"))
    assert version_in(got(tmp_path, place=str(archive))) == "1.0.1"


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """With the variable that names another."""
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FolderNotWritableError) as error:
        got(tmp_path, package="demo")
    assert "BUILDDOCTOR_CACHE_DIR" in error.value.hint


def test_what_fetches_is_loaded_when_something_is_fetched() -> None:
    """A supervised build starts without it."""
    heavy = ("httpx", "pypi_simple", "requests", "pydantic", "installer")
    code = f"import sys, builddoctor.cli.run, builddoctor.cli.build; print([n for n in {heavy} if n in sys.modules])"
    asked = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert asked.stdout.strip() == "[]"
