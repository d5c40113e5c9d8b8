"""The site of the documentation, built as CI builds it: strictly, so that a warning is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_site(to: Path, configuration: Path = ROOT / "mkdocs.yml", repository: str = "") -> str:
    """Writes the site to a folder. Gives what MkDocs complains of: nothing, for a good one."""
    # The theme tells of its successor on stderr otherwise.
    quiet = {"NO_MKDOCS_2_WARNING": "1", "BUILDDOCTOR_REPOSITORY": repository}
    env = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | quiet
    # Not --quiet: what is not shown is not counted either, and a strict build passes.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(configuration), "-d", str(to)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO "))
    assert bool(done.returncode) == bool(complaints), (done.returncode, done.stdout, done.stderr)
    return complaints
