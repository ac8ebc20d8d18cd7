"""`podyard tpu notebook`: the notebook of a node, over ssh on a port of this machine."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from podyard.cli.kit.names import complete_node
from podyard.cli.kit.options import target_options
from podyard.cli.kit.output import say
from podyard.cli.kit.zones.resources import NODES, client_at
from podyard.cli.nodes.tpu_hosts import Login
from podyard.domain.host import LOOPBACK, NOTEBOOK

if TYPE_CHECKING:
    import asyncssh

_ANY_PORT_THERE = 80  # the name leads to the notebook, whatever the port


@click.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@click.option("--worker", default="0", show_default=True, help="Index of the worker.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8888,
    show_default=True,
    help="Port on this machine; 0 picks a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and start no browser.")
def notebook(
    node: str,
    data: str | None,
    project: str | None,
    location: str | None,
    worker: str,
    port: int,
    no_browser: bool,
) -> None:
    """Open JupyterLab on a worker, until Ctrl-C.

    The connection is ssh. Kernels go on after Ctrl-C, and end with the node.
    """
    if not worker.isdigit():
        raise click.UsageError(f"unknown --worker {worker!r}: use a number")
    client = client_at(NODES, node, data, project, location)

    async def forward(connection: asyncssh.SSHClientConnection) -> None:
        path = f"{client.own_path(None)}/nodes/{quote(node)}:openNotebook"
        answer = await asyncio.to_thread(client.call, "POST", path, {"worker": int(worker)})
        token = str(answer.get("token"))
        listener = await connection.forward_local_port(LOOPBACK, port, NOTEBOOK, _ANY_PORT_THERE)
        url = f"http://{LOOPBACK}:{listener.get_port()}/lab?token={token}"
        click.echo(url)
        if not no_browser and not await asyncio.to_thread(webbrowser.open, url):
            say("no browser was found: open this address")
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ended = asyncio.ensure_future(connection.wait_closed())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            say(f"the connection to {node} has ended")
        stopped.cancel()
        ended.cancel()

    Login(client, node, data).on_each(worker, forward)
