"""The meeting point of a cluster: Dask's scheduler, with our keys and without its web pages.

Covers: serving until a signal comes. It knows who is there; phases and their files go past it, from build to node.
Does *not* cover: where phases go: each build's own scheduler decides that (``scheduler.nodes``).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import dask.config
from distributed import Scheduler
from distributed.core import connect
from distributed.security import Security

from builddoctor.core.errors import ClusterError
from builddoctor.system.root import SystemRoot
from builddoctor.system.user_folders import HeldFolder

SILENT_NODE = "15 s"
"""A node that was not heard of for so long is taken for gone: its phases are run elsewhere."""

SETTINGS = {
    # A phase that took its node down must not take the next one down as well: the build decides where it goes then.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": SILENT_NODE,
    # Phases are placed one by one: what Dask would move or hold back for balance is left alone.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.worker.heartbeat-interval": "2 s",
    "distributed.comm.timeouts.connect": "10 s",
    "distributed.comm.timeouts.tcp": "20 s",
    # Files are compressed by us.
    "distributed.comm.compression": None,
    # Dask serves web pages, without keys, on any port: nothing is there to be seen.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
REACH_S = 10
NO_PAGES = "127.0.0.1:0"
"""Where they would be."""


def quiet() -> None:
    """Dask says of itself only what goes wrong."""
    logging.getLogger("distributed").setLevel(logging.WARNING)
    # Its own folder lies in one of ours, which is gone before.
    logging.getLogger("distributed.diskutils").setLevel(logging.CRITICAL)


def reach(address: str, security: Security | None) -> None:
    """Somebody answers there, who takes the certificate of a node. Raises ClusterError."""

    async def ask() -> None:
        with_keys = (security or Security()).get_connection_args("worker")
        comm = await connect(address, timeout=REACH_S, **with_keys)
        await comm.close()

    try:
        asyncio.run(ask())
    except (OSError, TimeoutError, asyncio.TimeoutError) as error:
        raise ClusterError(
            f"no cluster at {address}: {str(error) or f'no answer in {REACH_S} s'}",
            hint="is `builddoctor cluster serve` running there, with the keys that are here?",
        ) from error


def serve_forever(
    address: str,
    security: Security | None,
    ready: Callable[[str, int | None], None],
    also_serving: Callable[[], AbstractAsyncContextManager[int]] | None = None,
) -> None:
    """Until SIGINT or SIGTERM. ``ready`` is given the address, and the port of what is served by ``also_serving``.

    Raises ClusterError where it cannot listen.
    """
    quiet()
    # Dask makes a folder of its own among the temporary files, and leaves it.
    with (
        HeldFolder(tempfile.gettempdir(), "builddoctor-serve-", SystemRoot()) as folder,
        dask.config.set({**SETTINGS, "temporary-directory": str(folder)}),
    ):
        asyncio.run(_serve(address, security, ready, also_serving))


async def _serve(
    address: str,
    security: Security | None,
    ready: Callable[[str, int | None], None],
    also_serving: Callable[[], AbstractAsyncContextManager[int]] | None,
) -> None:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    try:
        async with (
            Scheduler(
                host=address, security=security or Security(), dashboard=False, dashboard_address=NO_PAGES
            ) as scheduler,
            also_serving() if also_serving is not None else nullcontext() as port,
        ):
            ready(scheduler.address, port)
            await done.wait()
    except OSError as error:
        raise ClusterError(
            f"cannot listen at {address}: {error.strerror or error}", hint="name another port with `--listen`"
        ) from error
