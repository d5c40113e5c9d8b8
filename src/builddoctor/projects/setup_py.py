"""What a setup.py says, from its syntax tree and its text: nothing in it is run.

Covers: the name that it gives to ``setup()``, paths that it uses whatever the circumstances, whether it imports torch,
always builds a ``CUDAExtension``, calls nvcc by its path. Certain is what stands outside of ``if``, ``try``, loops and
classes, in the file itself or in a function that is called so. A file that cannot be parsed says nothing for certain.
Does *not* cover: variables (but for the name), and other modules that it imports.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable

import msgspec

MOST_CHARACTERS = 256 * 1024
MOST_PATHS = 2000
UNKNOWN = "\0"
"""stands for a part of a path that is not written there"""

_ENDS = frozenset(("exit", "_exit"))
_ASKS = frozenset(
    ("exists", "isdir", "isfile", "is_dir", "is_file", "glob", "iglob", "rglob", "get", "getenv", "setdefault", "print")
) | frozenset(("warn", "warning", "info", "error", "debug", "log", "removeprefix", "startswith", "endswith"))
"""Calls that only ask for a path, or tell of one."""

_JOINS = frozenset(("join", "joinpath", "Path", "PurePath"))
_HARMLESS = re.compile(
    r"exclu|ignor|skip|optional|package_data|data_files|licen[cs]e|description|url|help|docs?\b|tests?\b", re.IGNORECASE
)
"""Keywords, and variables, whose paths may be missing."""

_CONDITIONAL = (
    ast.IfExp,
    ast.BoolOp,
    ast.Compare,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


class SetupPy(msgspec.Struct, frozen=True, kw_only=True):
    """Empty where it says nothing."""

    names: tuple[str, ...] = ()
    """``name=`` of ``setup()``"""
    paths: tuple[str, ...] = ()
    """pieces joined by ``/``, UNKNOWN for what is not written out"""
    cuda_extension: bool = False
    """it always builds one"""
    imports_torch: bool = False
    """at its top level: Python cannot read it without torch"""
    nvcc_by_path: bool = False
    """it speaks neither of CMake nor of torch's BuildExtension with Ninja: distutils calls ``$CUDA_HOME/bin/nvcc``"""


def read_setup(text: str) -> SetupPy:
    """The facts. Never raises."""
    by_path = calls_nvcc_by_path(text)
    try:
        tree = _parsed(text)
        if tree is None:
            return SetupPy(nvcc_by_path=by_path)
        walk = _Walk(tree)
        return SetupPy(
            names=tuple(_names(tree)),
            paths=tuple(dict.fromkeys(walk.paths[:MOST_PATHS])),
            cuda_extension=walk.cuda_extension,
            imports_torch=any(map(_imports_torch, tree.body)),
            nvcc_by_path=by_path,
        )
    except (RecursionError, MemoryError):
        return SetupPy(nvcc_by_path=by_path)


def calls_nvcc_by_path(text: str) -> bool:
    """See ``SetupPy``; true also of what compiles nothing by nvcc."""
    text = text.lower()
    # torch takes PYTORCH_NVCC with Ninja alone, and distutils nothing of the kind. CMake, on the other hand, has to
    # find the compiler as it is (docs/adr/0004).
    by_ninja = "buildextension" in text and "use_ninja" not in text
    return bool(text.strip()) and not by_ninja and "cmake" not in text


def _imports_torch(statement: ast.stmt) -> bool:
    names = [each.name for each in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        names = [statement.module or ""]
    return any(name.split(".")[0] == "torch" for name in names)


def _parsed(text: str) -> ast.Module | None:
    """The syntax tree; None when there is none, or it would take long."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            # Of escapes in its strings.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Walk:
    """Everything that is certainly run when setup.py is."""

    def __init__(self, tree: ast.Module) -> None:
        self.paths: list[str] = []
        self.cuda_extension = False
        self._functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        self._block(tree.body)

    def _block(self, body: Iterable[ast.stmt]) -> bool:
        """False when what follows may not be reached."""
        for statement in body:
            if isinstance(statement, ast.If) and _is_main(statement.test):
                goes_on = self._block(statement.body)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    self._expression(item.context_expr)
                goes_on = self._block(statement.body)
            elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                self._assigned(statement)
                continue
            elif isinstance(statement, ast.Expr):
                # A string by itself is a comment.
                if not isinstance(statement.value, ast.Constant):
                    self._expression(statement.value)
                goes_on = not _may_end(statement)
            elif isinstance(statement, ast.Return):
                if statement.value is not None:
                    self._expression(statement.value)
                goes_on = False
            else:
                # if, try, while, for, match, assert, raise, import …
                goes_on = not _may_end(statement)
            if not goes_on:
                return False
        return True

    def _assigned(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        if statement.value is not None and not any(_HARMLESS.search(name) for name in names):
            self._expression(statement.value)

    def _expression(self, node: ast.AST) -> None:
        if isinstance(node, _CONDITIONAL):
            return
        if isinstance(node, (ast.Constant, ast.JoinedStr)) or (
            isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add))
        ):
            path = _as_path(node)
            if path.strip(f"{UNKNOWN}/"):
                self.paths.append(path)
            if isinstance(node, ast.BinOp):
                self._parts(node)
            return
        if isinstance(node, ast.Call):
            self._call(node)
            return
        for child in ast.iter_child_nodes(node):
            self._expression(child)

    def _parts(self, node: ast.BinOp) -> None:
        """Calls and lists inside of a sum; its strings are part of one path."""
        for side in (node.left, node.right):
            if isinstance(side, ast.BinOp):
                self._parts(side)
            elif not isinstance(side, (ast.Constant, ast.JoinedStr, ast.Name)):
                self._expression(side)

    def _call(self, call: ast.Call) -> None:
        name = _called(call)
        if name in _ASKS or _fetches(call):
            return
        if name in ("CUDAExtension", "CUDA_Extension"):
            self.cuda_extension = True
        if name in _JOINS:
            self.paths.append("/".join(_as_path(argument) for argument in call.args))
            rest: list[ast.AST] = [each for each in call.args if not isinstance(each, ast.Constant)]
        else:
            rest = list(call.args)
        rest += [each.value for each in call.keywords if not _HARMLESS.search(each.arg or "")]
        if isinstance(call.func, ast.Attribute):
            rest.append(call.func.value)
        for each in rest:
            self._expression(each)
        function = self._functions.pop(name, None) if isinstance(call.func, ast.Name) else None
        if function is not None:
            self._block(function.body)


def _as_path(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value[:500] if isinstance(node.value, str) else UNKNOWN
    if isinstance(node, ast.JoinedStr):
        return "".join(_as_path(each) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return f"{_as_path(node.left)}/{_as_path(node.right)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _as_path(node.left) + _as_path(node.right)
    if isinstance(node, ast.Call) and _called(node) in _JOINS:
        return "/".join(_as_path(each) for each in node.args)
    return UNKNOWN


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _fetches(call: ast.Call) -> bool:
    """It runs `git submodule`: what it names need not be there."""
    texts = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any("submodule" in text for text in texts) and any("git" in text.split() for text in texts)


def _may_end(statement: ast.stmt) -> bool:
    """It holds a way out that is no failure."""
    return any(
        isinstance(each, ast.Return) or (isinstance(each, ast.Call) and _called(each) in _ENDS)
        for each in ast.walk(statement)
    )


def _is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )


def _names(tree: ast.Module) -> list[str]:
    constants: dict[str, str] = {}
    for each in tree.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            constants.update((target.id, each.value.value) for target in each.targets if isinstance(target, ast.Name))
    names: list[str] = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call) == "setup":
            for keyword in call.keywords:
                value = keyword.value
                if keyword.arg == "name" and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    names.append(value.value)
                elif keyword.arg == "name" and isinstance(value, ast.Name):
                    names.append(constants.get(value.id, ""))
    return [name for name in names if name] or [name for name in (constants.get("PACKAGE_NAME"),) if name]
