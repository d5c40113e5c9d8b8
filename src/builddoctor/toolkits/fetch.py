"""Get wheels: from the cache where it has them, else through pip, the large ones one at a time: none comes twice.

Does *not* cover: which ones (``toolkits.components``), or what is in them (``toolkits.wheel``).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from builddoctor.errors import PackageDamagedError, PackageUnavailableError
from builddoctor.intercept.pip import OFFLINE_HINT, fetch_wheels, find_pip
from builddoctor.toolkits import store
from builddoctor.toolkits.cache import WheelCache
from builddoctor.toolkits.components import TOOLKIT, size_mib
from builddoctor.units import MIB, format_mib

LARGE_MIB = 5
"""What is smaller is not worth a line, nor a pip of its own."""


class Fetcher:
    """Wheels for one architecture. Who uses it holds the lock of the cache's folder."""

    def __init__(
        self,
        folder: Path,
        platforms: Sequence[str],
        *,
        env: Mapping[str, str],
        offline: bool,
        fresh: bool,
        say: Callable[[str], None],
    ) -> None:
        """``fresh``: ask the index again for whatever has no exact version."""
        self.cache = WheelCache(folder, platforms)
        self.fetched_mib = 0.0
        self._platforms = platforms
        self._env = env
        self._offline = offline
        self._fresh = fresh and not offline
        self._say = say
        self._python = ""

    def cached(self, requirement: str) -> bool:
        """It would be taken from the cache."""
        need = Requirement(requirement)
        exact = need.name != TOOLKIT and any(each.operator == "==" for each in need.specifier)
        return (exact or not self._fresh) and self.cache.best(requirement) is not None

    def get(self, requirement: str) -> tuple[Path, str]:
        """A wheel in the cache, and its sha256.

        Raises PackageUnavailableError, PackageDamagedError, DiskFullError; OSError when the cache cannot be written.
        """
        while self.cached(requirement) and (wheel := self.cache.best(requirement)) is not None:
            if digest := self.cache.checked(wheel):
                return wheel, digest
            self._say(f"{wheel.name} in the cache was damaged, and is fetched again")
        if self._offline:
            raise PackageUnavailableError(
                f"{requirement} is not among the wheels in {self.cache.folder}, and --offline fetches nothing",
                hint=OFFLINE_HINT,
            )
        return self._one(requirement)

    def get_small(self, requirements: Iterable[str]) -> None:
        """All small wheels that are not here, at once. What cannot be had is left for ``get`` to tell."""
        small = [need for need in requirements if size_mib(Requirement(need).name)[0] < LARGE_MIB]
        missing = [] if self._offline else [need for need in small if not self.cached(need)]
        if len(missing) > 1:
            with contextlib.suppress(PackageUnavailableError, PackageDamagedError):
                self._fetch(missing)

    def _one(self, requirement: str) -> tuple[Path, str]:
        size, _ = size_mib(Requirement(requirement).name)
        if size >= LARGE_MIB:
            self._say(f"fetches {requirement} (about {format_mib(size)})")
        kept = self._fetch([requirement])[0]
        digest = self.cache.checked(kept)
        if not digest:
            raise PackageDamagedError(f"{kept.name} changed while it was kept", hint="try again")
        return kept, digest

    def _fetch(self, requirements: Sequence[str]) -> list[Path]:
        self._python = self._python or find_pip(self._env)
        staging = Path(tempfile.mkdtemp(prefix=store.FETCH, dir=self.cache.folder))
        try:
            wheels = fetch_wheels(self._python, requirements, staging, platforms=self._platforms, env=self._env)
            self.fetched_mib += sum(wheel.stat().st_size for wheel in wheels) / MIB
            return [self.cache.add(wheel) for wheel in wheels]
        finally:
            shutil.rmtree(staging, ignore_errors=True)
