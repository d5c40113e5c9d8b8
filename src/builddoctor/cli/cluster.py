"""``builddoctor cluster keys|serve|status``: where machines meet that run phases for each other.

Covers: keys, the meeting point with its store, who is there. Does *not* cover: nodes (``cli.worker``), or a build that
uses them (``--cluster``, ``--store``).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from builddoctor.cli import options
from builddoctor.cli.output import JsonOption, print_answer, print_notes
from builddoctor.cluster.addresses import checked_address, store_beside, tls_for, with_port
from builddoctor.core.cluster import ClusterNode
from builddoctor.core.errors import UsageError
from builddoctor.phase_store.folder import DEFAULT_MIB, StoreFolder
from builddoctor.phase_store.server import StoreServer
from builddoctor.ui.machine_page import node_rows

app = typer.Typer(no_args_is_help=True, help="Other machines that run phases of builds.", rich_markup_mode=None)

Listen = Annotated[
    str, typer.Option("--listen", metavar="ADDRESS", help="Where to listen; tcp:// for 127.0.0.1 alone.")
]
Offered = Annotated[
    str,
    typer.Option(
        "--store", metavar="FOLDER", help="Offer this folder of results to builds, at the port after that of --listen."
    ),
]
AddressArgument = Annotated[str, typer.Argument(metavar="ADDRESS", help="Such as tls://build-host:8786.")]


@app.command("keys")
def keys(folder: options.KeysOption = "") -> None:
    """Make the keys of a new cluster: who has them may take part, nobody else.

    A node needs ca.pem and node.pem, a machine that builds ca.pem and client.pem, in the same folder there.

    \b
    Examples:
      builddoctor cluster keys
    """
    there = options.with_cluster(folder)
    from builddoctor.cluster.keys import VALID_DAYS, make_keys

    made = make_keys(there)
    print_notes(
        [
            f"builddoctor: wrote {', '.join(path.name for path in made)} to {there}; good for {VALID_DAYS} days",
            "next: copy ca.pem and node.pem to the nodes, and start `builddoctor cluster serve` here",
        ]
    )


@app.command("serve")
def serve(
    listen: Listen = "tls://0.0.0.0:8786",
    folder: options.KeysOption = "",
    store: Offered = "",
    store_size: options.StoreSizeOption = "",
) -> None:
    """Serve as the point where nodes and builds meet, until Ctrl-C. It compiles nothing itself.

    \b
    Examples:
      builddoctor cluster serve
      builddoctor cluster serve --store ~/.cache/builddoctor-store
      builddoctor cluster serve --listen tcp://127.0.0.1:8786    # without keys, for this machine alone
    """
    if store_size and not store:
        raise UsageError("--store-size without a store", hint="add `--store FOLDER`, or leave it out")
    address = checked_address(listen)
    offered = options.offered_folder(store) if store else ""
    there = options.with_cluster(folder)
    from builddoctor.cluster.keys import security_for
    from builddoctor.cluster.server import serve_forever

    security = security_for(address, there, "server")
    also_serving = None
    if store:
        beside = store_beside(address)
        size_mib = options.store_mib(store_size) if store_size else DEFAULT_MIB
        server = StoreServer(
            StoreFolder(Path(offered), most_mib=size_mib),
            said=lambda text: print_notes([f"builddoctor: store: {text}"]),
        )
        also_serving = partial(server.serving, beside, tls_for(address, there, "server"))

    def ready(at: str, store_port: int | None) -> None:
        lines = [f"builddoctor: serves at {at}; nodes join with `builddoctor worker {at}`"]
        if store_port is not None:
            lines.append(f"builddoctor: builds share {store} with `--store {with_port(at, store_port)}`")
            if security is None:
                lines.append("builddoctor: without keys: any user of this machine may read and write these results")
        print_notes(lines)

    serve_forever(address, security, ready, also_serving)


@app.command("status")
def status(address: AddressArgument, folder: options.KeysOption = "", json: JsonOption = False) -> None:
    """Show the nodes of a cluster: cores, memory, and whether their toolkit is the same as here.

    \b
    Examples:
      builddoctor cluster status tls://build-host:8786
    """
    checked, there = checked_address(address), options.with_cluster(folder)
    from builddoctor.cluster.client import nodes_of

    found = [
        ClusterNode(
            host=facts.host,
            address=at,
            cores=facts.cores,
            budget_mib=facts.budget_mib,
            machine=facts.machine,
            builddoctor=facts.builddoctor,
        )
        for at, facts in sorted(nodes_of(checked, there).items())
    ]
    print_answer(found, lambda: node_rows(found), json=json)
