"""The ssh server of a host: commands, shells, sftp and scp, in the host's folder and with its
environment.

Who may log in is what the metadata `ssh-keys` of the node and of its project says, and nothing
else. In a box everybody is the user of that name (`box/login.py`). Without boxes everybody is the
one that Podyard runs as: the name before the key only has to match. What runs belongs to the host
and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import os
import signal
import socket
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import asyncssh
from asyncssh.stream import SSHTCPStreamSession
from typing_extensions import override

from podyard.base.clock import RealClock
from podyard.domain.host import NOTEBOOK, RELAY_USER, login_keys
from podyard.domain.host_key import private_openssh, relay_seed
from podyard.workers.box import files as box_files
from podyard.workers.box import limit as box_limit
from podyard.workers.box import network as box_network
from podyard.workers.box.login import ROOT
from podyard.workers.box.plan import USER
from podyard.workers.host.scripts import SHELL, USERS_UMASK, HostProcesses

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from podyard.workers.box.box import Box
    from podyard.workers.host.metadata import MetadataSource
    from podyard.workers.host.notebooks.notebook import Notebook

# commands and shells at once: far beyond people, below what a machine bears
SESSIONS_PER_HOST_MAX = 64
LOGIN_SECONDS_MAX = 20  # for a client that connects and says nothing
KEEPALIVE_SECONDS = 30  # a client that has vanished is noticed after three of these
_PROHIBITED = asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
EXIT_REFUSED = 255  # as ssh itself says "not the command's exit code"
# A session leader gets the terminal that it opens first as its controlling one.
_ON_TERMINAL = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'


def host_key(seed: bytes) -> asyncssh.SSHKey:
    return asyncssh.import_private_key(private_openssh(seed))


def _relay_key(key: asyncssh.SSHKey) -> str:
    """The public key of `RELAY_USER` at the host with this key."""
    private = cast("Ed25519PrivateKey", key.pyca_key)
    return public_text(host_key(relay_seed(private.private_bytes_raw())))


def public_text(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 AAAA...`, without a comment."""
    return " ".join(key.export_public_key().decode().split()[:2])


class SshHost:
    """A host, as the ssh server needs it. `refresh` asks the API for newer metadata: a key may have
    been added since the last look. `environment` is called for each session."""

    def __init__(
        self,
        source: MetadataSource,
        home: Path,
        processes: HostProcesses,
        environment: Callable[[], Mapping[str, str]],
        refresh: Callable[[], Awaitable[None]],
        clock: RealClock,
        notebook: Notebook,
    ) -> None:
        self.source = source
        self.box = processes.box
        self.notebook = notebook
        self.home = home
        self.processes = processes
        self.environment = environment
        self.refresh = refresh
        self.clock = clock
        self.sessions = 0
        self.session_number = 0

    @property
    def ends(self) -> int:
        """Return how often all programs of the box were ended."""
        return 0 if self.box is None else self.box.ends

    async def is_authorized(self, user: str, key: asyncssh.SSHKey) -> bool:
        given = public_text(key)
        if given in self._keys(user):
            return True
        await self.refresh()
        return given in self._keys(user)

    def _keys(self, user: str) -> tuple[str, ...]:
        return login_keys(self.source.facts, self.clock.now()).get(user, ())


async def listen(
    host: SshHost, listener: socket.socket, key: asyncssh.SSHKey
) -> asyncssh.SSHAcceptor:
    """Serves ssh on a socket that is bound already."""
    return await asyncssh.listen(sock=listener, **_options(host, key))


async def serve(
    host: SshHost, connection: socket.socket, key: asyncssh.SSHKey
) -> asyncssh.SSHServerConnection:
    """Serves ssh on a connection that was accepted already; returns once the client has logged
    in."""
    return await asyncssh.run_server(connection, **_options(host, key))


def _options(host: SshHost, key: asyncssh.SSHKey) -> dict[str, Any]:
    sessions: dict[str, Any] = {}
    if host.box is None:
        sessions = {
            "process_factory": lambda process: _run(host, process),
            "sftp_factory": lambda channel: _Files(channel, host.home),
            "allow_scp": True,
        }
    return {
        **sessions,
        "server_factory": lambda: _SshServer(host, key),
        "server_host_keys": [key],
        "encoding": None,
        "line_editor": False,
        "login_timeout": LOGIN_SECONDS_MAX,
        "keepalive_interval": KEEPALIVE_SECONDS,
        "agent_forwarding": False,
        "gss_host": None,
    }


class _SshServer(asyncssh.SSHServer):
    _is_relay = False

    def __init__(self, host: SshHost, key: asyncssh.SSHKey) -> None:
        self._host = host
        self._key = key

    @override
    def begin_auth(self, username: str) -> bool:
        self._is_relay = username == RELAY_USER
        return True

    @override
    def public_key_auth_supported(self) -> bool:
        return True

    @override
    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        if self._is_relay:
            return hmac.compare_digest(public_text(key), _relay_key(self._key))
        return await self._host.is_authorized(username, key)

    @override
    def session_requested(self) -> _BoxSession | bool:
        if self._is_relay:
            raise asyncssh.ChannelOpenError(_PROHIBITED, "tunnels only")
        return _BoxSession(self._host) if self._host.box is not None else False

    @override
    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Any:
        """Port forwarding (ssh -L): who has a shell here reaches the same places anyway."""
        host = self._host
        if self._is_relay:
            if host.box is None or dest_host != RELAY_USER:
                text = "only the port of ssh can be reached: this host has no box"
                raise asyncssh.ChannelOpenError(_PROHIBITED, text)
            dest_host = host.source.facts.internal_ips[host.source.index]
        elif dest_host == NOTEBOOK:
            return host.notebook.serve
        return True if host.box is None else _forward(host, host.box, dest_host, dest_port)


async def _forward(
    host: SshHost, box: Box, dest_host: str, dest_port: int
) -> SSHTCPStreamSession[bytes]:
    """Raises ChannelOpenError where nothing listens, as sshd does."""
    try:
        there = await box_network.dial(box, host.source.facts, dest_host, dest_port)
    except OSError as error:
        text = f"{dest_host}:{dest_port}: {error or 'timeout'}"
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, text) from None
    return SSHTCPStreamSession(partial(box_network.join_socket, there))


class _BoxSession(asyncssh.SSHServerProcess[bytes]):
    """A session of a box: sftp and scp are programs there, like all others."""

    def __init__(self, host: SshHost) -> None:
        super().__init__(
            lambda process: _run(host, process), None, box_files.SFTP_VERSION, allow_scp=False
        )

    @override
    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    @override
    def session_started(self) -> None:
        reader, writer = asyncssh.SSHReader(self, self._chan), asyncssh.SSHWriter(self, self._chan)
        errors = asyncssh.SSHWriter(self, self._chan, asyncssh.EXTENDED_DATA_STDERR)
        work = self._start_process(reader, writer, errors)
        assert self._conn is not None and inspect.isawaitable(work)
        self._conn.create_task(work, reader.logger)


class _Files(asyncssh.SFTPServer):
    """Relative paths begin at home, as they do for commands; absolute ones are what they are for
    commands, too."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], home: Path) -> None:
        super().__init__(channel)
        self._home = os.fsencode(home)

    @override
    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118 (a path of bytes)

    @override
    def exit(self) -> None:
        # OpenSSH's scp speaks sftp, and takes an end without an exit code for a failure.
        channel = cast("asyncssh.SSHServerChannel[bytes]", self.channel)
        if channel.get_subsystem() == "sftp":
            channel.exit(0)


async def _run(host: SshHost, process: asyncssh.SSHServerProcess[bytes]) -> None:
    """One command or shell, from its start to its exit code."""
    if host.sessions >= SESSIONS_PER_HOST_MAX:
        process.stderr.write(
            f"{SESSIONS_PER_HOST_MAX} sessions run on this host already\n".encode()
        )
        process.exit(EXIT_REFUSED)
        return
    host.sessions += 1
    run = _run_with_pipes if process.term_type is None else _run_on_terminal
    ends = host.ends
    try:
        code = await run(host, process)
        why = box_limit.reason(host.box) if host.ends > ends and host.box is not None else ""
        _leave(process, code, why)
    except OSError as error:
        process.stderr.write(f"the command cannot be started: {error}\n".encode())
        process.exit(EXIT_REFUSED)
    finally:
        host.sessions -= 1
    # What the library still has to clear up for this process is waited for here.
    await process.wait_closed()


async def _run_with_pipes(host: SshHost, process: asyncssh.SSHServerProcess[bytes]) -> int:
    pipe = asyncio.subprocess.PIPE
    argv, cwd = _command(process), host.home
    if host.box is not None:
        argv, cwd = host.box.enter_as(_user(process), argv), Path("/")
    child = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, env=dict(host.environment()), start_new_session=True, umask=USERS_UMASK,
        stdin=pipe, stdout=pipe, stderr=pipe,
    )  # fmt: skip
    with _record(host, child.pid):
        process.set_redirect_pid(child.pid)
        # Its end is sent with the exit code: until then we may have to say something ourselves.
        await process.redirect(
            stdin=child.stdin, stdout=child.stdout, stderr=child.stderr, send_eof=False
        )
        code = await child.wait()
        with contextlib.suppress(asyncssh.Error, ConnectionError):
            await process.stdout.drain()
            await process.stderr.drain()
        return code


async def _run_on_terminal(host: SshHost, process: asyncssh.SSHServerProcess[bytes]) -> int:
    command = _command(process)
    if host.box is None:
        ours, theirs = os.openpty()
        argv, cwd = ["/bin/sh", "-c", _ON_TERMINAL, os.ttyname(theirs), *command], host.home
    else:
        ours, theirs, name = host.box.open_terminal()
        argv, cwd = host.box.enter_as(_user(process), command, terminal=name), Path("/")
    try:
        columns, lines, *_ = process.term_size
        if columns and lines:
            termios.tcsetwinsize(ours, (lines, columns))
        env = {**host.environment(), "TERM": process.term_type or "dumb"}
        child = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=env, start_new_session=True, umask=USERS_UMASK,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        with _record(host, child.pid):
            await process.redirect(stdin=os.dup(ours), stdout=os.dup(ours), send_eof=False)
            ended = asyncio.ensure_future(child.wait())
            closed = asyncio.ensure_future(process.channel.wait_closed())
            await asyncio.wait((ended, closed), return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            if not ended.done():
                # The client is gone: its terminal hangs up, as sshd's would.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGHUP)
            # Ours is the last hold on the terminal once the session has ended: then the reader sees
            # its end.
            os.close(theirs)
            theirs = -1
            code = await ended
            with contextlib.suppress(asyncssh.Error, ConnectionError):
                await process.stdout.drain()
            return code
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def _command(process: asyncssh.SSHServerProcess[bytes]) -> list[str]:
    if isinstance(process, _BoxSession) and (
        process.subsystem or (process.command or "").startswith("scp ")
    ):
        asked = [process.command] if process.command else []
        return [sys.executable, "-I", box_files.__file__, *asked]
    return [SHELL, "-c", process.command] if process.command is not None else [SHELL]


def _user(process: asyncssh.SSHServerProcess[bytes]) -> str:
    """Whom a session is for in the box. A client that its user runs as root names root, unasked:
    that is the box's first user."""
    name = str(process.get_extra_info("username"))
    return USER if name == ROOT else name


def _leave(process: asyncssh.SSHServerProcess[bytes], code: int, why: str) -> None:
    """`why`: the platform ended the command, if it did."""
    with contextlib.suppress(OSError, asyncssh.Error):
        if why:
            process.stderr.write(f"podyard: {why}\n".encode())
        if code >= 0:
            process.exit(code)
        else:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))


@contextlib.contextmanager
def _record(host: SshHost, pid: int) -> Iterator[None]:
    """Keeps the record of a session as long as anything of it may live: it is found by it whatever
    it does."""
    host.session_number += 1
    name = f"session-{host.session_number}-{pid}"
    host.processes.record_session(name, pid)
    try:
        yield
    finally:
        host.processes.forget_session_if_gone(name, pid)
