"""A CUDA toolkit that is none: its nvcc only calls one tool, and that is a program of the test's."""

from __future__ import annotations

import subprocess
from pathlib import Path

# nvcc takes its folder from argv[0], which a script cannot see: hence a program.
NVCC = r"""
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char copy[4096], here[4096], top[4096], tool[8192];
    snprintf(copy, sizeof copy, "%s", argv[0]);
    snprintf(here, sizeof here, "%s", dirname(copy));
    snprintf(copy, sizeof copy, "%s", here);
    snprintf(top, sizeof top, "%s", dirname(copy));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--version") == 0)
            return !printf("Cuda compilation tools, release 13.0, V13.0.1\n");
        if (strcmp(argv[i], "--dryrun") == 0)
            return fprintf(stderr, "#$ _HERE_=%s\n#$ TOP=%s/..\n#$ CICC_PATH=%s/nvvm/bin\n#$ PATH=%s/nvvm/bin:%s\n",
                           here, here, top, top, here) < 0;
    }
    /* Questions such as --list-gpu-arch have no answer. */
    if (argc < 3 || strcmp(argv[1], "-c") != 0)
        return 0;
    snprintf(tool, sizeof tool, "%s/" TOOL, here);
    argv[0] = tool;
    execv(tool, argv);
    return 127;
}
"""


def fake_toolkit(folder: Path, program: str, *, tool: str = "cudafe++") -> Path:
    """A toolkit in ``folder`` whose nvcc calls this Python program as ``tool``; gives the folder for ``--toolkit``."""
    bin_folder, nvvm = folder / "bin", folder / "nvvm" / "bin"
    for each in (bin_folder, nvvm):
        each.mkdir(parents=True)
    source = folder / "nvcc.c"
    source.write_text(NVCC)
    subprocess.run(["cc", f'-DTOOL="{tool}"', "-o", str(bin_folder / "nvcc"), str(source)], check=True)
    for path in (bin_folder / "cudafe++", bin_folder / "ptxas", nvvm / "cicc"):
        path.write_text(f"#!/usr/bin/env python3\n{program if path.name == tool else ''}")
        path.chmod(0o755)
    return folder
