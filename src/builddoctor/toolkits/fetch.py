"""Get wheels: from the cache where it has them, else through pip, one at a time, so that nothing is fetched twice.

Does *not* cover: which ones (``toolkits.components``), or what is in them (``toolkits.wheel``).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from builddoctor.errors import PackageDamagedError, PackageUnavailableError
from builddoctor.intercept.pip import OFFLINE_HINT, fetch_wheel, find_pip
from builddoctor.toolkits.cache import WheelCache
from builddoctor.toolkits.components import TOOLKIT, size_mib
from builddoctor.units import MIB, format_mib

LARGE_MIB = 5
"""What is smaller is not worth a line."""


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
        return self._fetch(requirement)

    def _fetch(self, requirement: str) -> tuple[Path, str]:
        self._python = self._python or find_pip(self._env)
        size, _ = size_mib(Requirement(requirement).name)
        if size >= LARGE_MIB:
            self._say(f"fetches {requirement} (about {format_mib(size)})")
        staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=self.cache.folder))
        try:
            wheel = fetch_wheel(self._python, requirement, staging, platforms=self._platforms, env=self._env)
            self.fetched_mib += wheel.stat().st_size / MIB
            kept = self.cache.add(wheel)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        digest = self.cache.checked(kept)
        if not digest:
            raise PackageDamagedError(f"{kept.name} changed while it was kept", hint="try again")
        return kept, digest
