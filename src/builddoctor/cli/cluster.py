"""``builddoctor cluster keys|serve|status``: where machines meet that run phases for each other.

Covers: keys, the meeting point, who is there. Does *not* cover: nodes (``cli.worker``), or a build that uses them
(``--cluster``).
"""

from __future__ import annotations

from typing import Annotated

import typer

from builddoctor.cli import options
from builddoctor.cli.output import JsonOption, print_answer, print_notes
from builddoctor.core.cluster import ClusterNode
from builddoctor.ui.machine_page import node_rows

app = typer.Typer(no_args_is_help=True, help="Other machines that run phases of builds.", rich_markup_mode=None)

Listen = Annotated[
    str, typer.Option("--listen", metavar="ADDRESS", help="Where to listen; tcp:// for 127.0.0.1 alone.")
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
def serve(listen: Listen = "tls://0.0.0.0:8786", folder: options.KeysOption = "") -> None:
    """Serve as the point where nodes and builds meet, until Ctrl-C. It compiles nothing itself.

    \b
    Examples:
      builddoctor cluster serve
      builddoctor cluster serve --listen tcp://127.0.0.1:8786    # without keys, for this machine alone
    """
    there = options.with_cluster(folder)
    from builddoctor.cluster.keys import security_for
    from builddoctor.cluster.server import serve_forever

    address = options.cluster_address(listen)
    security = security_for(address, there, "server")

    def ready(at: str) -> None:
        print_notes([f"builddoctor: serves at {at}; nodes join with `builddoctor worker {at}`"])

    serve_forever(address, security, ready)


@app.command("status")
def status(address: AddressArgument, folder: options.KeysOption = "", json: JsonOption = False) -> None:
    """Show the nodes of a cluster: cores, memory, and whether their toolkit is the same as here.

    \b
    Examples:
      builddoctor cluster status tls://build-host:8786
    """
    there = options.with_cluster(folder)
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
        for at, facts in sorted(nodes_of(options.cluster_address(address), there).items())
    ]
    print_answer(found, lambda: node_rows(found), json=json)
