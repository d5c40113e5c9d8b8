"""Measured builds as the estimator meets them, for tests on data that was left out."""

from __future__ import annotations

from pathlib import Path

from builddoctor.core.phase import Outcome
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.estimation.features import Done
from builddoctor.recipes.recipe_file import read_recipe
from builddoctor.simulate import of_recipe
from builddoctor.simulate.engine import Known
from builddoctor.simulate.workload import Workload, unit_id
from support.measured_builds import from_digest

ROOT = Path(__file__).resolve().parents[2]


def measured(name: str) -> Workload:
    """A digest of ``tests/data``."""
    return from_digest(ROOT / "tests" / "data" / f"{name}.csv")


def example() -> Workload:
    """The phases of this repository's own example, by its recipe."""
    return of_recipe.workload(read_recipe(ROOT / "recipes" / "attention_kernels-x86_64.toml"))


def informed(known: Known) -> LearningEstimator:
    """An estimator that was told of each unit what a build's history would tell it."""
    estimator = LearningEstimator()
    for name, (key, past) in known.items():
        estimator.know(name, key=key, past=past, archs=key.archs if key is not None else ())
    return estimator


def units_of(build: Workload) -> list[list[Done]]:
    """Its phases, unit by unit, as priors are fitted to them."""
    units = []
    for index, unit in enumerate(build.units):
        dones = []
        for number, work in enumerate(unit.phases):
            phase = work.asks(1000 * index + number, unit_id(index), unit.source)
            dones.append(Done(phase, work.peak_mib, work.wall_s))
        units.append(dones)
    return units


def shares(estimator: LearningEstimator, build: Workload) -> tuple[list[float], list[float]]:
    """Bounds and medians over the truth, each phase learned after it was estimated."""
    bounds, medians = [], []
    for unit in units_of(build):
        for done in unit:
            estimate = estimator.estimate(done.phase)
            bounds.append(estimate.reserve_mib / done.peak_mib)
            medians.append(estimate.peak_mib / done.peak_mib)
            estimator.observe(done.phase, outcome=Outcome.OK, peak_mib=done.peak_mib, wall_s=done.wall_s)
    return bounds, medians
