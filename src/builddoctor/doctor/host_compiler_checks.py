"""Checks of nvcc's host compiler and its C library. Pure.

Does *not* cover: asking them (``toolchain``), or clashes of single projects with single compilers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.toolchain import HostCompilerChoice, HostLimits, Toolchain, Toolkit
from builddoctor.projects.nvcc_archs import release, spelled
from builddoctor.toolchain.cuda_libraries import CLASHES
from builddoctor.toolchain.discover import HOST_HINT

_NAMES = {"gnu": "gcc", "clang": "clang"}
_ERRORS = {"gnu": "unsupported GNU version", "clang": "unsupported clang version"}


def host_checks(toolchain: Toolchain, toolkit: Toolkit, *, stops: bool) -> Iterator[Check]:
    """Is there a host compiler, does this nvcc accept it, and do its C library's headers go with CUDA's.

    ``stops``: what cannot compile at all stops a build. Only when every compiler that some tool may hand to nvcc is
    refused, and no option overrides the check: what a project's own flags say is not known here.
    """
    if toolchain.host_problem and not toolchain.broken_variables:
        text = f"nvcc finds no host compiler: {toolchain.host_problem}"
        if toolchain.host_silent:
            text = f"nvcc did not name its host compiler: {toolchain.host_problem}"
        yield Topic.HOST_COMPILER.check(
            "host-compiler",
            Status.PROBLEM,
            text,
            _other_compiler(toolchain) or HOST_HINT,
            stops=stops and not toolchain.host_silent,
        )
    refused = [host for host in toolchain.hosts if not accepted(host, toolchain.limits)]
    hopeless = len(refused) == len(toolchain.hosts) and not toolchain.unsupported_allowed_by
    for host in toolchain.hosts:
        yield _one(toolchain, toolkit, host, stops=stops and hopeless)
    yield from _libc(toolchain, toolkit, stops=stops)


def accepted(host: HostCompilerChoice, limits: HostLimits) -> bool:
    """``crt/host_config.h`` lets it through. What is not known of either counts as accepted."""
    major = host.major
    if major is None:
        return True
    if host.kind == "gnu":
        return limits.gnu_newest is None or major <= limits.gnu_newest
    if host.kind == "clang":
        newest, oldest = limits.clang_newest, limits.clang_oldest
        return (newest is None or major <= newest) and (oldest is None or major >= oldest)
    return True


def _one(toolchain: Toolchain, toolkit: Toolkit, host: HostCompilerChoice, *, stops: bool) -> Check:
    name = "host-compiler"
    called = f"{_NAMES.get(host.kind, '')} {host.version}".strip()
    where = host.driver if host.because == "PATH" else f"{host.driver}, from {host.because}"
    given = "" if host.taken_by in ("nvcc", "") else f"{host.taken_by} hands it {called} ({where})"
    if not called:
        what = "did not answer in time" if host.silent else "does not preprocess a C++ file"
        text = f"{where} is nvcc's host compiler and {what}"
        return Topic.HOST_COMPILER.check(name, Status.WARNING, text)
    newest = toolchain.limits.gnu_newest if host.kind == "gnu" else toolchain.limits.clang_newest
    if accepted(host, toolchain.limits):
        upto = f"; nvcc {toolkit.version} accepts up to {newest}" if newest is not None else ""
        return Topic.HOST_COMPILER.check(name, Status.OK, (given or f"{called} ({where})") + upto)
    refusal = (
        f"nvcc {toolkit.version} does not accept {called} ({where}): `{_ERRORS[host.kind]}`, {newest} is its newest"
    )
    if given:
        refusal = f"{given}, which nvcc {toolkit.version} does not accept: {newest} is its newest"
    if toolchain.unsupported_allowed_by:
        text = f"{refusal}; -allow-unsupported-compiler in {toolchain.unsupported_allowed_by} lets it try"
        return Topic.HOST_COMPILER.check(name, Status.WARNING, text)
    own = toolchain.hosts[0]
    if host is not own and accepted(own, toolchain.limits):
        return Topic.HOST_COMPILER.check(name, Status.WARNING, refusal, f"unset {host.because}")
    hint = _other_compiler(toolchain, host.because)
    if not hint:
        program = f"g++-{newest}" if host.kind == "gnu" else f"clang++-{newest}"
        hint = f"install {program} or older, then: {_export(host.because, program)}"
    return Topic.HOST_COMPILER.check(name, Status.PROBLEM, refusal, hint, stops=stops)


def _other_compiler(toolchain: Toolchain, because: str = "PATH") -> str:
    """A compiler of this machine that this nvcc accepts, g++ before clang++, newest first; empty without one."""
    fit = [spare for spare in toolchain.spare_hosts if spare.version and accepted(spare, toolchain.limits)]
    fit.sort(key=lambda spare: (spare.kind != "gnu", -(spare.major or 0)))
    return _export(because, fit[0].driver) if fit else ""


def _export(because: str, driver: str) -> str:
    if because in ("NVCC_CCBIN", "CUDAHOSTCXX"):
        return f"export {because}={shlex.quote(driver)}"
    if because == "CC":
        # torch takes CC for C files too.
        return f"export CC={shlex.quote(driver.replace('clang++', 'clang').replace('g++', 'gcc'))}"
    variable = because if because.endswith("_FLAGS") else "NVCC_PREPEND_FLAGS"
    return f'export {variable}="${variable} -ccbin {driver}"'


def _libc(toolchain: Toolchain, toolkit: Toolkit, *, stops: bool) -> Iterator[Check]:
    hosts = [host for host in toolchain.hosts if host.glibc]
    clashing = {host.driver: _clashes(toolchain, host) for host in hosts}
    for host in hosts:
        functions = clashing[host.driver]
        if not functions:
            continue
        own = host is toolchain.hosts[0]
        yield Topic.HOST_COMPILER.check(
            "glibc",
            Status.PROBLEM if own else Status.WARNING,
            f"glibc {host.glibc} ({host.driver}) clashes with CUDA {toolkit.version}: every source fails with "
            f'`exception specification is incompatible with that of previous function "{functions[0]}"`',
            _libc_hint(functions),
            stops=stops and own and all(clashing.values()),
        )


def _clashes(toolchain: Toolchain, host: HostCompilerChoice) -> list[str]:
    glibc = release(host.glibc)
    return [name for name in toolchain.bare_functions or () if glibc >= CLASHES.get(name, (99,))]


def _libc_hint(functions: list[str]) -> str:
    needed = (13, 2) if "rsqrt" in functions else (13, 0)
    return f"builddoctor toolkit install {spelled(needed)} && builddoctor doctor --toolkit {spelled(needed)}"
