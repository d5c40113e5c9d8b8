"""``builddoctor worker ADDRESS``: this machine as a node of a cluster.

The node is a supervised build whose compilers are those that others send: it has the same limits, board and trace, and
its own scheduler starts nothing that does not fit here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import typer

from builddoctor.cli import options
from builddoctor.cli.cluster import AddressArgument
from builddoctor.cli.loudness import Quiet, Verbose, loudness
from builddoctor.cli.run import run_supervised
from builddoctor.cluster.addresses import checked_address
from builddoctor.core.cluster import NODE_PROGRAM
from builddoctor.gates.subprocesses import run_captured
from builddoctor.runtime.folders import site_folders
from builddoctor.system.platform import usable_cores
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.discover import candidates, find_toolkit
from builddoctor.toolchain.host_compiler import host_compilers
from builddoctor.toolchain.options import INNER_COMPILERS
from builddoctor.toolchain.travelling import CUDA_TRAVELLERS


def worker(
    context: typer.Context,
    address: AddressArgument,
    folder: options.KeysOption = "",
    memory: options.Memory = "",
    cores: options.Cores = None,
    toolkit: options.ToolkitOption = "",
    trace: options.TraceFile = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Run phases of others' builds on this machine, within its memory, until Ctrl-C.

    It runs only what a build has too: the programs are compared byte by byte, not by version.

    \b
    Examples:
      builddoctor worker tls://build-host:8786
      builddoctor worker tls://build-host:8786 --memory 64GiB --cores 16
    """
    del quiet, verbose
    at, there = checked_address(address), options.with_cluster(folder)
    from builddoctor.cluster.keys import security_for
    from builddoctor.cluster.node_program import NodeSettings
    from builddoctor.cluster.server import reach

    reach(at, security_for(at, there, "node"))
    root, env = SystemRoot(), os.environ
    found = find_toolkit(
        candidates(root, env, wanted=toolkit, site_folders=site_folders(env)), env, wanted=toolkit, run=run_captured
    )
    cuda = [*found.tools, ("cicc", found.cicc)]
    gccs = host_compilers(env, run=run_captured)
    host = [
        (f"{gcc.machine}/{gcc.version}/{name}", path)
        for gcc in gccs
        for name, path in gcc.programs
        if name in INNER_COMPILERS
    ]
    request = options.make_request(
        (),
        cwd=Path.cwd(),
        title=f"node of {at}",
        archs=(),
        memory=memory,
        cores=cores,
        toolkit=toolkit or found.nvcc,
        trace=trace,
        summary="",
        ignore_caps=False,
        no_doctor=True,
        need_toolkit=True,
    )
    settings = NodeSettings(
        address=at,
        keys=str(there.absolute()),
        cores=cores or usable_cores(root),
        memory_mib=request.memory_mib,
        cuda=tuple((name, path) for name, path in cuda if name in CUDA_TRAVELLERS),
        host=tuple(host),
    )
    words = (sys.executable, "-m", NODE_PROGRAM, msgspec.json.encode(settings).decode())
    return run_supervised(msgspec.structs.replace(request, command=words), loud=loudness(context))
