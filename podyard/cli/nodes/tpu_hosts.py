"""`podyard tpu hosts|env|ssh|exec|scp|ssh-config`: what runs on the hosts of a node.

Asking for a shell or a command materialises the hosts. Login is by a key of this data folder, which
is put into the node's `ssh-keys` metadata as gcloud does; the hosts' keys are known from the API,
so that nobody can stand between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.base.files import read_json
from podyard.cli.kit.client import Client
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import complete_node
from podyard.cli.kit.options import output_option, settings_of, target_options
from podyard.cli.kit.output import emit
from podyard.cli.kit.terminal import progress
from podyard.cli.kit.zones.resources import NODES, client_at
from podyard.domain.host import SSH_KEYS, host_name, with_ssh_key

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")

SSH_PORT_VARIABLE = "PODYARD_SSH_PORT"  # `podyard env` says it where `podyard connect` has hosts
# a host is up within a second or two; a machine that is busy may take its time
HOST_SECONDS_MAX = 30.0
SOFTWARE_SECONDS_MAX = 1900.0  # more than the making of an environment may take
CONNECT_SECONDS_MAX = 20.0
OPERATION_SECONDS_MAX = 60.0  # of a change of metadata
CONNECTIONS_MAX = 16  # at once, with --worker all
LOGIN_USER = "podyard"
KEY_FILE = "podyard_ed25519"
EXIT_SIGNALLED = 128  # plus the signal's number, as shells do
EXIT_UNKNOWN = 255

_HOST_COLUMNS = {
    "WORKER": "worker",
    "STATE": "state",
    "ADDRESS": "address",
    "PORTS": "ports|text",
    "INTERNAL_IP": "internalIp",
    "STARTUP": "scripts.startup-script.state",
    "PROBLEM": "problem|text",
    "SOFTWARE": "software|text",
    "ISOLATION": "isolation",
}
_worker_option = click.option(
    "--worker", default="0", show_default=True, help="Index of the worker, or all."
)


@click.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@lists(_HOST_COLUMNS)
def hosts(node: str, data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List the hosts of a node without starting them.

    VIRTUAL: no program, script or login has needed the host yet. It starts with the first one.
    """
    client = client_at(NODES, node, data, project, location)
    found: list[Item] = client.call("GET", f"{_node_path(client, node)}/hosts")["hosts"]
    return found


@click.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@_worker_option
@click.option(
    "--address",
    is_flag=True,
    help="Start the host, and also print the address of its metadata server.",
)
@output_option
def env(
    node: str,
    data: str | None,
    project: str | None,
    location: str | None,
    worker: str,
    address: bool,
    output: str,
) -> None:
    """Print the environment of a worker: eval "$(podyard tpu env NODE --worker 1)"."""
    client = client_at(NODES, node, data, project, location)
    if address:
        found = materialise(client, node, worker)
    else:
        found = _choose(
            client.call("GET", f"{_node_path(client, node)}/hosts")["hosts"], worker, node
        )
    if output != "table":
        emit(
            found[0]["environment"] if len(found) == 1 else [host["environment"] for host in found],
            output,
        )
        return
    if len(found) > 1:
        raise click.UsageError(
            "--worker all: use -o json, since exports of two workers would overwrite each other"
        )
    for name, value in found[0]["environment"].items():
        click.echo(f"export {name}={shlex.quote(value)}")


@click.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@_worker_option
@click.option("--command", help="Command to run instead of a shell.")
def ssh(
    node: str,
    data: str | None,
    project: str | None,
    location: str | None,
    worker: str,
    command: str | None,
) -> int:
    """Open a shell on a worker, or run a command there."""
    if command is None and worker == "all":
        raise click.UsageError("--worker all requires --command")
    return _run(node, data, project, location, worker, command, terminal=command is None)


@click.command(name="exec", context_settings={"ignore_unknown_options": True})
@click.argument("node", shell_complete=complete_node)
@click.argument("command", nargs=-1, required=True)
@target_options
@_worker_option
def execute(
    node: str,
    command: tuple[str, ...],
    data: str | None,
    project: str | None,
    location: str | None,
    worker: str,
) -> int:
    """Run a command on a worker, or on all: podyard tpu exec NODE --worker all -- CMD."""
    text = command[0] if len(command) == 1 else shlex.join(command)
    return _run(node, data, project, location, worker, text, terminal=False)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SRC... DST")
@target_options
@_worker_option
@click.option("--recurse", "-r", is_flag=True, help="Copy folders recursively.")
def scp(
    paths: tuple[str, ...],
    data: str | None,
    project: str | None,
    location: str | None,
    worker: str,
    recurse: bool,
) -> None:
    """Copy files to or from a worker. NODE:PATH is a path on the worker, relative to its home."""
    *sources, target = paths
    if not sources:
        raise click.UsageError("scp requires a source and a target")
    there, there_path = _remote(target)
    remote = [_remote(source) for source in sources]
    nodes = {name for name, _ in [*remote, (there, there_path)] if name is not None}
    downloads = there is None
    if len(nodes) != 1 or any((name is None) is downloads for name, _ in remote):
        raise click.UsageError(
            "use NODE:PATH either for all sources or for the target, with one node"
        )
    if downloads and worker == "all":
        raise click.UsageError("--worker all copies to workers, not from them")
    node = nodes.pop()
    login = Login(client_at(NODES, node, data, project, location), node, data)

    async def copy(connection: asyncssh.SSHClientConnection) -> None:
        import asyncssh

        if downloads:
            await asyncssh.scp([(connection, path) for _, path in remote], target, recurse=recurse)
        else:
            await asyncssh.scp(list(sources), (connection, there_path), recurse=recurse)

    login.on_each(worker, copy)


@click.command(name="ssh-config")
@click.argument("node", shell_complete=complete_node)
@target_options
@click.option("--worker", default="all", show_default=True, help="Index of the worker, or all.")
def ssh_config(
    node: str, data: str | None, project: str | None, location: str | None, worker: str
) -> None:
    """Print an OpenSSH configuration for a node. Usage: podyard tpu ssh-config NODE > F; ssh -F F
    NODE-w-0."""
    login = Login(client_at(NODES, node, data, project, location), node, data)
    found = login.prepare(worker)
    known = login.key_path.with_name(f"known_hosts-{node}")
    known.write_text(
        "".join(f"{host['host']} {host['sshHostKey']}\n" for host in found), encoding="ascii"
    )
    for host in found:
        lines = {
            "HostName": host["address"],
            "Port": host["ports"]["ssh"],
            "User": LOGIN_USER,
            "IdentityFile": f'"{login.key_path}"',
            "IdentitiesOnly": "yes",
            "HostKeyAlias": host["host"],
            "UserKnownHostsFile": f'"{known}"',
            "StrictHostKeyChecking": "yes",
        }
        click.echo(f"Host {host_name(node, host['worker'])}")
        click.echo("".join(f"  {name} {value}\n" for name, value in lines.items()))


class Login:
    """Logs in to workers of one node with the key of the data folder."""

    def __init__(self, client: Client, node: str, data: str | None) -> None:
        self._client = client
        self._node = node
        settings = settings_of(data)
        self._state_path = settings.state_path
        self.key_path = settings.data / "ssh" / KEY_FILE

    def prepare(self, worker: str) -> list[dict[str, Any]]:
        """The hosts, running, with our key among those that may log in."""
        found = materialise(self._client, self._node, worker)
        public = _own_key(self.key_path).export_public_key().decode()
        path = f"{self._client.zone_path()}/nodes/{quote(self._node)}"
        metadata = dict(self._client.call("GET", path).get("metadata", {}))
        keys = with_ssh_key(metadata.get(SSH_KEYS, ""), LOGIN_USER, public)
        if keys != metadata.get(SSH_KEYS):
            body = {"metadata": {**metadata, SSH_KEYS: keys}}
            operation = self._client.call("PATCH", path, body, updateMask="metadata")
            self._client.wait_operation(operation, OPERATION_SECONDS_MAX)
        return found

    def on_each(
        self, worker: str, work: Callable[[asyncssh.SSHClientConnection], Awaitable[T]]
    ) -> list[T]:
        """Return the results of `work` on each worker, in their order."""
        found = self.prepare(worker)

        async def all_of_them() -> list[T]:
            turns = asyncio.Semaphore(CONNECTIONS_MAX)

            async def one(host: dict[str, Any]) -> T:
                async with turns, self._connection(host) as connection:
                    return await work(connection)

            return await asyncio.gather(*(one(host) for host in found))

        import asyncssh

        try:
            return asyncio.run(all_of_them())
        except (asyncssh.Error, OSError) as error:
            raise PodyardError(Code.UNAVAILABLE, f"ssh to {self._node}: {error}") from None

    def _place(self, host: dict[str, Any]) -> tuple[str, int]:
        """Return where the host answers from here: with `podyard connect` at its external
        address."""
        ssh_port = os.environ.get(SSH_PORT_VARIABLE) or read_json(self._state_path).get("sshPort")
        if ssh_port is not None:
            return host["externalIp"], int(ssh_port)
        return host["address"], host["ports"]["ssh"]

    @contextlib.asynccontextmanager
    async def _connection(self, host: dict[str, Any]) -> Any:
        import asyncssh

        known: tuple[list[asyncssh.SSHKey], ...] = (
            [asyncssh.import_public_key(host["sshHostKey"])],
            [],
            [],
        )
        async with asyncssh.connect(
            *self._place(host),
            username=LOGIN_USER,
            client_keys=[str(self.key_path)],
            known_hosts=known,
            config=None,
            agent_path=None,
            connect_timeout=CONNECT_SECONDS_MAX,
        ) as connection:
            yield connection


def _run(
    node: str, data: str | None, project: str | None, location: str | None, worker: str,
    command: str | None,
    *, terminal: bool,
) -> int:  # fmt: skip
    login = Login(client_at(NODES, node, data, project, location), node, data)
    if worker != "all":
        return login.on_each(
            worker, lambda connection: _attach(connection, command, terminal and os.isatty(0))
        )[0]
    import asyncssh

    async def collect(connection: asyncssh.SSHClientConnection) -> asyncssh.SSHCompletedProcess:
        return await connection.run(command, stdin=asyncssh.DEVNULL, encoding=None)

    # Each worker's output in one piece and in their order, so that workers do not mix.
    done = login.on_each(worker, collect)
    for item in done:
        for stream, said in ((sys.stdout, item.stdout), (sys.stderr, item.stderr)):
            stream.buffer.write(said if isinstance(said, bytes) else b"")
            stream.flush()
    return next((code for code in map(_exit_code, done) if code), 0)


async def _attach(
    connection: asyncssh.SSHClientConnection, command: str | None, terminal: bool
) -> int:
    """Runs a command, or a shell, with our own input and output."""
    import asyncssh

    size = os.get_terminal_size(0) if terminal else None
    with _raw_terminal(terminal):
        process = await connection.create_process(
            command,
            term_type=os.environ.get("TERM", "xterm") if terminal else None,
            term_size=(size.columns, size.lines) if size else None,
            stdin=os.dup(0) if _can_be_read(0) else asyncssh.DEVNULL,
            stdout=os.dup(1),
            stderr=os.dup(2),
            encoding=None,
        )
        if terminal:

            def on_resize() -> None:
                process.change_terminal_size(*os.get_terminal_size(0))

            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, on_resize)
        return _exit_code(await process.wait())


def _exit_code(done: asyncssh.SSHCompletedProcess) -> int:
    if done.exit_signal is not None:
        number = getattr(signal, f"SIG{done.exit_signal[0]}", 0)
        return EXIT_SIGNALLED + int(number)
    return EXIT_UNKNOWN if done.exit_status is None else done.exit_status


@contextlib.contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Keys go to the other side as they are typed; afterwards everything is as it was."""
    before = None
    if wanted:
        import termios
        import tty

        before = termios.tcgetattr(0)
        tty.setraw(0)
    try:
        yield
    finally:
        # The event loop has made the shared descriptors non-blocking, which the user's shell would
        # suffer from.
        for descriptor in (0, 1, 2):
            with contextlib.suppress(OSError):
                os.set_blocking(descriptor, True)
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _can_be_read(descriptor: int) -> bool:
    """Terminals, pipes, sockets and files; of other devices (/dev/null) nothing is to be waited
    for."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode) or os.isatty(descriptor)


def _own_key(path: Path) -> asyncssh.SSHKey:
    """The key of this data folder, made when there is none; readable by its owner only."""
    import asyncssh

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519", comment=LOGIN_USER)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.export_private_key())
        # Never over one that another command has made meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    return asyncssh.read_private_key(path)


def materialise(
    client: Client, node: str, worker: str, location: str | None = None
) -> list[dict[str, Any]]:
    """The chosen hosts, once they run. `location`: another zone than the client's."""
    path = _node_path(client, node, location)
    body = {"workers": [] if worker == "all" else [_index(worker)]}
    asked = client.call("POST", f"{path}:materialise", body)["hosts"]
    numbers = {host["worker"] for host in asked}

    def ask() -> dict[str, Any]:
        found = client.call("GET", f"{path}/hosts")["hosts"]
        return {"hosts": [host for host in found if host["worker"] in numbers]}

    told = ""

    def waits(found: dict[str, Any]) -> bool:
        """Return whether a host waits for its software; says how far that is."""
        nonlocal told
        text = next(
            (host["software"] for host in found["hosts"] if host["state"] == "STARTING"), ""
        )
        if text and text != told:
            told = text
            progress(f"podyard tpu: {text}")
        return bool(text)

    def has_ended(found: dict[str, Any]) -> bool:
        failed = next(
            (host for host in found["hosts"] if host["state"] == "VIRTUAL" and host["problem"]),
            None,
        )
        if failed is not None:
            raise PodyardError(
                Code.UNAVAILABLE, f"worker {failed['worker']} of {node}: {failed['problem']}"
            )
        return all(host["state"] == "RUNNING" for host in found["hosts"])

    what = f"the start of the hosts of {node}"
    found = client.poll(ask, lambda found: waits(found) or has_ended(found), HOST_SECONDS_MAX, what)
    if waits(found):
        client.poll(
            ask, lambda found: not waits(found), SOFTWARE_SECONDS_MAX, f"the software of {node}"
        )
        progress("")
        found = client.poll(ask, has_ended, HOST_SECONDS_MAX, what)
    return list(found["hosts"])


def _choose(found: Sequence[dict[str, Any]], worker: str, node: str) -> list[dict[str, Any]]:
    if worker == "all":
        return list(found)
    chosen = [host for host in found if host["worker"] == _index(worker)]
    if not chosen:
        raise PodyardError(
            Code.INVALID_ARGUMENT,
            f"worker {worker} does not exist: node {node} has workers 0 to {len(found) - 1}",
        )
    return chosen


def _index(worker: str) -> int:
    if not worker.isdigit():
        raise click.UsageError(f"unknown --worker {worker!r}: use a number or all")
    return int(worker)


def _remote(text: str) -> tuple[str | None, str]:
    """(node, path) of NODE:PATH, with the login that gcloud's users write before it left aside;
    (None, path) else."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name:
        return None, text
    return name.rsplit("@", 1)[-1], path.removeprefix("~/") or "."


def _node_path(client: Client, node: str, location: str | None = None) -> str:
    return f"{client.own_path(location)}/nodes/{quote(node)}"


HOST_COMMANDS = (hosts, env, ssh, execute, scp, ssh_config)
