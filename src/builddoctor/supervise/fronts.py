"""Answers to the programs that run a build: ninja's window, and the net for folders configured without us."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from builddoctor.errors import BuildDoctorError
from builddoctor.intercept import fronts
from builddoctor.intercept.environment import net
from builddoctor.intercept.overlay import toolkit_overlay
from builddoctor.intercept.protocol import Registered
from builddoctor.intercept.toolkit import probe
from builddoctor.model.toolkit import Toolkit
from builddoctor.supervise.prepare import Prepared


class Fronts:
    """What is known of the build from those that run it. ``planned`` adds up the units of all ninja runs."""

    def __init__(self, prepared: Prepared, env: Mapping[str, str], *, keep_going: bool = False) -> None:
        self._prepared = prepared
        self._env = env
        self._keep_going = keep_going
        self._real = dict(prepared.tools.fronts)
        self._counting: set[asyncio.Task[None]] = set()
        self.planned: int | None = None
        self.plain: dict[str, str | None] = {}
        """what the variables of the net were before it was cast over the whole build; None: they were not there"""

    async def answer(self, front: Registered) -> tuple[list[str], dict[str, str | None]]:
        """Further arguments and environment for this program; None takes a variable away."""
        arguments: list[str] = []
        if fronts.wants_jobs(front.name, front.argv):
            arguments = ["-j", str(self._prepared.knobs.window)]
        if self._keep_going:
            arguments += fronts.going_on(front.name, front.argv)
        if front.name in fronts.NINJA_NAMES:
            counting = asyncio.create_task(self._count(front))
            self._counting.add(counting)
            counting.add_done_callback(self._counting.discard)
        if front.name == "cmake" and "--build" not in front.argv:
            # It asks nvcc for its libraries when it configures, and without a profile nvcc does not know them.
            return arguments, dict(self.plain)
        nvcc = fronts.configured_nvcc(front.name, front.argv, front.cwd)
        settings: dict[str, str | None] = await asyncio.to_thread(self._net, nvcc) if nvcc is not None else {}
        return arguments, settings

    def _net(self, nvcc: Path) -> dict[str, str | None]:
        toolkit = probe(nvcc, self._env)
        if not isinstance(toolkit, Toolkit):
            return {}
        try:
            cuda = toolkit_overlay(self._prepared.cache, toolkit, self._env)
        except BuildDoctorError:
            # It is said when its first host compile comes from an nvcc that is not caught.
            return {}
        return {**net(cuda=cuda, toolkit=toolkit)}

    async def _count(self, front: Registered) -> None:
        real = self._real.get(front.name)
        if real is None:
            return
        planned = await asyncio.to_thread(fronts.planned_units, real, front.argv, front.cwd)
        if planned:
            self.planned = (self.planned or 0) + planned
