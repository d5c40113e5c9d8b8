"""What each command prints with ``--json``, and where its schema is.

Does *not* cover: how a schema is written (``generate``).
"""

from __future__ import annotations

from collections.abc import Mapping

from builddoctor.carry.archive import Restored, Saved
from builddoctor.cli.cache import Freed
from builddoctor.cli.explain import ExplainedFile
from builddoctor.cli.history import Forgotten
from builddoctor.cli.recipe import CheckedFile, MadeRecipe, ShownRecipe
from builddoctor.cli.status import ActivationStatus
from builddoctor.cli.toolkit import Removed
from builddoctor.cli.trace import Replayed, Shown
from builddoctor.cli.trace_repro import Reproduced
from builddoctor.core.check import Report
from builddoctor.core.cluster import ClusterNode
from builddoctor.core.configuration import Setting
from builddoctor.core.machine import Machine
from builddoctor.core.past import PastUnit
from builddoctor.core.plan import MatrixPlan, Plan
from builddoctor.core.recipe import Differences
from builddoctor.core.recipe_index import Pulled, Pushed
from builddoctor.history.store import ProjectRow
from builddoctor.machines.named import NominalMachine
from builddoctor.projects.build_plan import BuildPlan
from builddoctor.runtime.kept import KeptPart, Pruned
from builddoctor.toolkits.install import Installed, InstallPlan
from builddoctor.toolkits.listing import FoundToolkit
from builddoctor.trace.analysis import Peek
from builddoctor.trace.compare import Comparison
from builddoctor.trace.report import UnitRow
from builddoctor.ui.recipe_page import RecipeRow

ANSWERS: Mapping[str, tuple[object, ...]] = {
    "build": (BuildPlan,),
    "status": (ActivationStatus,),
    "doctor": (Report,),
    "plan": (Plan, MatrixPlan),
    "explain": (ExplainedFile,),
    "save": (Saved,),
    "restore": (Restored,),
    "trace list": (list[Peek],),
    "trace show": (Shown,),
    "trace units": (list[UnitRow],),
    "trace compare": (Comparison,),
    "trace replay": (Replayed,),
    "trace prune": (Pruned,),
    "trace repro": (Reproduced,),
    "toolkit install": (Installed, InstallPlan),
    "toolkit list": (list[FoundToolkit],),
    "toolkit path": (str,),
    "toolkit remove": (Removed,),
    "cluster status": (list[ClusterNode],),
    "machine list": (list[NominalMachine],),
    "machine show": (Machine, NominalMachine),
    "machine probe": (Machine, NominalMachine),
    "history show": (list[ProjectRow], list[PastUnit]),
    "history clear": (Forgotten,),
    "cache show": (list[KeptPart],),
    "cache clean": (Freed,),
    "config show": (list[Setting],),
    "recipe list": (list[RecipeRow],),
    "recipe show": (ShownRecipe,),
    "recipe from-trace": (MadeRecipe,),
    "recipe check": (list[CheckedFile],),
    "recipe diff": (Differences,),
    "recipe merge": (MadeRecipe,),
    "recipe push": (Pushed,),
    "recipe pull": (Pulled,),
}
"""By command: one of these."""

_BESIDE = {
    "doctor": "doctor.schema.json",
    "explain": "explain.schema.json",
    "status": "status.schema.json",
    "machine show": "machine.schema.json",
    "machine probe": "machine.schema.json",
}
"""Those that others link to."""


def schema_file(command: str) -> str:
    """Its path below ``docs/reference``."""
    return _BESIDE.get(command, f"json/{command.replace(' ', '-')}.schema.json")
