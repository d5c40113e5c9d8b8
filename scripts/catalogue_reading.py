"""What a project's build files say today, and where that differs from what was read before and from the catalogue.

Covers: the build front, build requirements, environment variables that setup.py (with the modules of the project that
it imports) and CMake read, CMake's own settings of architectures and of CUDA, submodules, architectures that are named.
All of it as text: nothing of the project is run. Facts alone are kept, in ``catalogue_seen.json``.
Does *not* cover: getting sources, variables whose names are put together while it runs, conditions, what another
project that is fetched during the build reads.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.core.project import KnownProject
from builddoctor.projects.catalogue import recognise
from builddoctor.projects.cmake import commands, without_comments
from builddoctor.projects.git_checkout import parse_gitmodules
from builddoctor.projects.metadata import project_version, pyproject_of
from builddoctor.system.source_files import build_files, text_of

MOST_MODULES = 200
"""of a project's own that its setup.py imports; DeepSpeed's operators are 50"""

_SYSTEM = frozenset(
    ("PATH", "HOME", "USER", "SHELL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "PYTHONPATH", "CI", "LANG", "PWD")
)
"""Variables that say nothing of the build."""

_BY_OTHERS = frozenset(
    ("MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "NVCC_APPEND_FLAGS", "CMAKE_BUILD_PARALLEL_LEVEL", "CMAKE_GENERATOR")
) | frozenset(("CMAKE_ARGS", "CUDAARCHS", "-DCMAKE_CUDA_ARCHITECTURES", "NINJAFLAGS"))
"""Read by torch's BuildExtension, nvcc, CMake or a build backend, whatever the project says."""

_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\Z")
_OTHERS_FOLDER = re.compile(r"(?i)\A(?:third_?party|3rd_?party|extern(?:al)?|deps|submodules?|cutlass|vendor)\Z")
_CMAKE_ENV = re.compile(r"\bENV\{(\w+)\}")
_CMAKE_SETTING = re.compile(r"CUDA|GPU|ARCH|COMPUTE|NVCC|THREADS|JOBS|BACKEND|CUBLAS|NCCL|BELOW_SM")
_TEXTS = (".py", ".cmake", ".mk", ".toml")
_SWITCH = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z")
_CODE = re.compile(r"\b(?:compute|sm)_(\d{2,3}[af]?)\b")
_ARCH_WORD = re.compile(r"(\d{2,3}|\d{1,2}\.\d)([af]?)(?:\+ptx|-real|-virtual)?\Z", re.IGNORECASE)
_ARCHS = re.compile(r"(?i)arch|capabilit|gencode")
_MAKE_VARIABLE = re.compile(r"(?m)^(?:export[ \t]+)?([A-Z][A-Z0-9_]*)[ \t]*\?=")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One release of a project, as its build files have it."""

    name: str
    version: str
    source: str
    """``flash-attn in the package index``, or ``a checkout``"""
    front: str
    """the backend of pyproject.toml, ``setup.py``, ``CMake``, ``make``"""
    requires: tuple[str, ...] = ()
    """``build-system.requires``"""
    variables: tuple[str, ...] = ()
    """of the environment, that are read"""
    settings: tuple[str, ...] = ()
    """of CMake, of architectures and CUDA: ``-DGGML_CUDA``"""
    submodules: tuple[str, ...] = ()
    """of a checkout; a source distribution seldom says"""
    archs: tuple[str, ...] = ()
    """that are named: ``90``, ``100a``; which of them are built, and when, the files say"""


def read_source(folder: Path, project: KnownProject, *, version: str, source: str) -> Seen:
    """The facts of a source tree. Never runs anything of it."""
    built = built_folder(folder, project)
    modules = tuple(path for path, _ in parse_gitmodules(text_of(folder / ".gitmodules") or ""))
    texts = _texts(built, modules)
    variables: set[str] = set()
    settings: set[str] = set()
    archs: set[str] = set()
    for path, text in texts:
        if path.endswith(".py"):
            tree = _parsed(text)
            variables |= set(_read_in_python(tree))
            archs |= set(_archs_in_python(tree))
        elif PurePosixPath(path).name.lower().endswith("makefile") or path.endswith(".mk"):
            variables |= set(_MAKE_VARIABLE.findall(text))
            archs |= set(_CODE.findall(text))
        else:
            plain = without_comments(text)
            variables |= set(_CMAKE_ENV.findall(plain))
            settings |= set(_cmake_settings(plain))
            archs |= {*_CODE.findall(plain), *_archs_in_cmake(plain)}
    pyproject = pyproject_of(built)
    return Seen(
        name=project.name,
        version=version or project_version(built) or project_version(folder),
        source=source,
        front=_front(built, pyproject.backend),
        requires=pyproject.requires,
        variables=tuple(sorted(name for name in variables if _NAME.match(name) and name not in _SYSTEM)),
        settings=tuple(sorted(settings)),
        submodules=tuple(sorted(modules)),
        archs=tuple(sorted(archs, key=lambda arch: (int(arch.rstrip("af")), arch))),
    )


def built_folder(folder: Path, project: KnownProject) -> Path:
    """The part of a checkout that is built."""
    return folder / project.subfolder if (folder / project.subfolder).is_dir() else folder


def changes(before: Seen | None, now: Seen, known: Sequence[str] = ()) -> list[str]:
    """What is different from last time, a sentence each. ``known``: what the catalogue has, ``catalogue_names``."""
    if before is None:
        return ["was not read before"]
    told = []
    if before.front != now.front:
        told.append(f"is built by {now.front}, before {before.front}")
    for what, old, new in (
        ("reads", before.variables, now.variables),
        ("has the setting", before.settings, now.settings),
        ("has the submodule", before.submodules, now.submodules),
        ("names the architecture", before.archs, now.archs),
        ("requires for its build", before.requires, now.requires),
    ):
        added = [each for each in new if each not in old]
        told += [f"{what} {', '.join(added)} (new)"] if added else []
        gone = [each for each in old if each not in new]
        others = ", ".join(each for each in gone if each not in known)
        told += [f"no longer {what} {others}"] if others else []
        told += [f"no longer {what} {each}, which the catalogue has" for each in gone if each in known]
    if not told and before.version != now.version:
        told.append("nothing of its build files has changed but the version")
    return told


def disagreements(project: KnownProject, now: Seen, folder: Path) -> list[str]:
    """What the catalogue says and the source does not. Submodules may be those of another version."""
    unread = [name for name in catalogue_names(project) if name not in {*now.variables, *now.settings} | _BY_OTHERS]
    told = [f"{name}, which the catalogue has, stands nowhere in it" for name in _written_nowhere(folder, unread)]
    if now.submodules and project.needed_submodules and not set(project.needed_submodules) & set(now.submodules):
        told.append(f"has none of the submodules that the catalogue needs: {', '.join(project.needed_submodules)}")
    if recognise(built_folder(folder, project)) != project:
        told.append("is not recognised by its name and marks")
    return told


def sentence(before: Seen | None, now: Seen, told: Sequence[str]) -> str:
    """One line for a maintainer: ``vllm 0.9 → 0.12: reads VLLM_FOO (new); …``."""
    moved = f"{before.version} → {now.version}" if before is not None and before.version != now.version else now.version
    return f"{now.name} {moved}: " + "; ".join(told)


def catalogue_names(project: KnownProject) -> tuple[str, ...]:
    """Variables, and CMake's settings as ``-DNAME``, that a catalogue entry speaks of."""
    found = [knob.variable for knob in project.jobs]
    found += [each.variable for each in (project.threads, project.archs) if each is not None]
    for text in (*project.settings, *project.cmake_args, *(each.off for each in project.components)):
        # CMAKE_ARGS=-DENABLE_X=OFF
        found.append(text.removeprefix("CMAKE_ARGS=").partition("=")[0].partition(":")[0])
    found += [each.partition("=")[0] for each in (project.force_build, project.avoids_sccache, project.debug_off)]
    return tuple(dict.fromkeys(name for name in found if name))


def _written_nowhere(folder: Path, names: Sequence[str]) -> list[str]:
    left = {name: re.compile(rf"\b{re.escape(name.removeprefix('-D'))}\b") for name in names}
    for file in folder.rglob("*") if left else ():
        if file.suffix in _TEXTS or file.name in ("CMakeLists.txt", "Makefile"):
            text = text_of(file) or ""
            left = {name: pattern for name, pattern in left.items() if not pattern.search(text)}
    return list(left)


def _front(folder: Path, backend: str) -> str:
    if backend:
        return backend
    for name, front in (
        ("pyproject.toml", "a backend of its own"),
        ("setup.py", "setup.py"),
        ("CMakeLists.txt", "CMake"),
        ("Makefile", "make"),
    ):
        if (folder / name).is_file() and (
            name != "pyproject.toml" or "build-backend" in (text_of(folder / name) or "")
        ):
            return front
    return "nothing that is known"


def _texts(folder: Path, submodules: Iterable[str]) -> list[tuple[str, str]]:
    """(path, text) of the build files that take part, as far as the text tells."""
    found = build_files(folder, frozenset(submodules)).paths
    wanted: list[str] = [path for path in ("setup.py", "Makefile", "makefile") if path in found]
    backend_path = re.search(r"""(?m)^build-backend\s*=\s*["'](\w+)["']""", text_of(folder / "pyproject.toml") or "")
    if backend_path and (folder / f"{backend_path[1]}.py").is_file():
        wanted.append(f"{backend_path[1]}.py")
    wanted += _imported(folder, wanted)
    wanted += _listfiles(folder, found, speaks_of_cmake=_speaks_of_cmake(folder, wanted))
    return [(path, text_of(folder / path) or "") for path in dict.fromkeys(wanted)]


def _speaks_of_cmake(folder: Path, python: Iterable[str]) -> bool:
    return any("cmake" in (text_of(folder / path) or "").lower() for path in python if path.endswith(".py"))


def _imported(folder: Path, start: Sequence[str]) -> list[str]:
    """Modules of the project that its setup.py imports, also from a folder that it puts on its path; and theirs."""
    found: dict[str, None] = {}
    places = [path for path in start if path.endswith(".py")]
    roots = [PurePosixPath(".")]
    for path in places:
        tree = _parsed(text_of(folder / path) or "")
        roots += [root for root in _on_path(tree) if root not in roots and (folder / root).is_dir()]
        for module in _modules(tree, path):
            for file in next(filter(None, (_files_of(folder, root.joinpath(*module)) for root in roots)), []):
                if file not in found and file not in start and len(found) < MOST_MODULES:
                    found[file] = None
                    places.append(file)
    return list(found)


def _files_of(folder: Path, module: PurePosixPath) -> list[str]:
    """A module, or all modules of a package; too many are no part of a build."""
    if (folder / f"{module}.py").is_file():
        return [f"{module}.py"]
    inside = sorted((folder / module).glob("*.py")) if (folder / module / "__init__.py").is_file() else []
    return [f"{module}/{each.name}" for each in inside] if len(inside) < MOST_MODULES // 2 else []


def _on_path(tree: ast.Module) -> Iterator[PurePosixPath]:
    """Folders that are named in ``sys.path.append(…)`` and its kin."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func).startswith("sys.path."):
            texts = [_as_text(each) for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield from (PurePosixPath(text) for text in texts if text and not text.startswith(("/", "..")))


def _modules(tree: ast.Module, path: str) -> Iterator[tuple[str, ...]]:
    here = PurePosixPath(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = (*base, *((node.module or "").split(".") if node.module else ()))
            if module:
                yield module
            yield from ((*module, alias.name) for alias in node.names if alias.name.isidentifier())


def _listfiles(folder: Path, found: Sequence[str], *, speaks_of_cmake: bool) -> list[str]:
    """CMake files that are reached from the outermost; below folders of other projects only where they are added."""
    lists = [path for path in found if PurePosixPath(path).name == "CMakeLists.txt"]
    own = [path for path in lists if not any(map(_OTHERS_FOLDER.match, PurePosixPath(path).parts[:-1]))]
    by_backend = pyproject_of(folder).backend.startswith(("scikit_build", "skbuild", "py_build_cmake"))
    python = any((folder / name).is_file() for name in ("setup.py", "pyproject.toml"))
    if not own or (python and not by_backend and not speaks_of_cmake):
        return []
    depth = min(path.count("/") for path in own)
    reached = dict.fromkeys(path for path in own if path.count("/") == depth)
    places = list(reached)
    for path in places:
        for named in _added(text_of(folder / path) or ""):
            for base in (PurePosixPath(path).parent, PurePosixPath(".")):
                place = base / named
                file = str(place / "CMakeLists.txt") if (folder / place).is_dir() else str(place)
                if ".." not in place.parts and file not in reached and (folder / file).is_file():
                    reached[file] = None
                    places.append(file)
    return list(reached)


def _added(text: str) -> Iterator[str]:
    """What a file adds or includes, as a path; a variable may have any value that is set in the same file."""
    values: dict[str, list[str]] = {}
    for command in commands(text):
        if command.name == "set" and len(command.args) > 1:
            values.setdefault(command.args[0], []).append(command.args[1])
        elif command.name in ("add_subdirectory", "include") and command.args:
            variable = re.fullmatch(r"\$\{(\w+)\}", command.args[0])
            for each in values.get(variable[1], []) if variable else command.args[:1]:
                written = re.sub(r"\A(?:\$\{\w+\}|\.)/", "", each)
                if "$" not in written and not written.startswith("/"):
                    yield written
                    yield f"cmake/{written}.cmake"


def _parsed(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _read_in_python(tree: ast.Module) -> Iterator[str]:
    """Names that are looked up in the environment, also by a helper with ``env`` in its name."""
    constants = {
        target.id: each.value.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    looked_up: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            owner, _, last = _dotted(node.func).rpartition(".")
            of_environment = last in ("get", "pop", "setdefault") and _is_environment(owner)
            # os.getenv, check_env_flag, get_env_if_set
            if of_environment or "env" in last.lower().replace("environ", ""):
                looked_up.append(node.args[0])
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environment(_dotted(node.value))
        ):
            looked_up.append(node.slice)
        elif isinstance(node, ast.Compare) and any(_is_environment(_dotted(each)) for each in node.comparators):
            looked_up.append(node.left)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "envs":
            # vLLM: a module whose attributes are the environment's variables.
            yield node.attr
    names = [constants.get(each.id) if isinstance(each, ast.Name) else _as_text(each) for each in looked_up]
    yield from (name for name in names if name)
    if None in names:
        # By a name that comes from somewhere else: a table of them, as in Apex, or a class's own, as in DeepSpeed.
        texts = (_as_text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant))
        yield from (text for text in texts if text and _SWITCH.match(text))


def _as_text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_environment(name: str) -> bool:
    return name.rpartition(".")[2] in ("environ", "env")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _archs_in_python(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _CODE.findall(node.value)
        named: list[ast.expr] = []
        if isinstance(node, ast.Assign) and any(_ARCHS.search(_dotted(each)) for each in node.targets):
            named = [node.value]
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            named = [node.value] if _ARCHS.search(_dotted(node.target)) else []
        elif isinstance(node, ast.Call) and any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) and _ARCHS.search(each.value)
            for each in node.args[:1]
        ):
            # os.getenv("X_CUDA_ARCHS", "80;90")
            named = node.args[1:2]
        for value in named:
            for each in ast.walk(value):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield from _arch_words(re.split(r"[;,\s]+", each.value.strip()))


def _archs_in_cmake(text: str) -> Iterator[str]:
    for command in commands(text):
        if command.name in ("set", "list", "set_property", "set_target_properties") and any(
            _ARCHS.search(each) for each in command.args[:4]
        ):
            yield from _arch_words(word for each in command.args for word in re.split(r"[;,\s]+", each))


def _arch_words(words: Iterable[str]) -> Iterator[str]:
    """``90`` of ``9.0+PTX``; years and percentages are none."""
    for word in words:
        if match := _ARCH_WORD.match(word):
            number = match[1].replace(".", "")
            if 30 <= int(number) < 200 and (int(number) < 100 or int(number) % 10 < 5):
                yield number + match[2].lower()


def _cmake_settings(text: str) -> Iterator[str]:
    for command in commands(text):
        name = command.args[0] if command.args else ""
        cached = command.name == "option" or (command.name == "set" and "CACHE" in command.args)
        # cmake_dependent_option, torch_cuda_option …
        if (cached or command.name.endswith("_option")) and _NAME.match(name) and _CMAKE_SETTING.search(name):
            yield f"-D{name}"
