"""`podyard env --session`: the redirection of `podyard run` without a command around it, for
launchers whose background servers outlive the command that started them.

A proxy runs in the background while the Podyard of the data folder runs. Its folder keeps the
authority, the roots and the port, so that the variables are the same each time, also after the
Podyard was restarted. `--end` stops the proxy and deletes the folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podyard.base.clock import OsClock
from podyard.base.errors import PodyardError, failed_precondition
from podyard.base.files import read_json, write_atomically
from podyard.base.interpreter import python_command
from podyard.cli.kit.client import Client, Target
from podyard.cli.redirect import redirect, tls
from podyard.cli.redirect.google import DOMAINS
from podyard.cli.redirect.proxy import Proxy
from podyard.cli.redirect.tunnel import Upstream
from podyard.http.certificates import Authority

FOLDER = "session"  # in the data folder
AUTHORITY_DAYS = 30
LEFT_SECONDS_MIN = 86400.0  # with less time left, a session that starts gets a new authority
START_SECONDS_MAX = 30.0
LOOK_SECONDS = 2.0  # between two looks whether the Podyard runs
ABSENT_LOOKS_MAX = 15  # half a minute without a Podyard ends the session: a restart takes less
_KEY_FILE, _CERTIFICATE_FILE = "authority.key", "authority.pem"
_STATE_FILE, _WORK_FILE, _LOG_FILE = "session.json", "work.json", "session.log"


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """The session's task, in a file. `port`: of the last time, or 0; `grpc`: host and port."""

    target: Sequence[Any]
    port: int
    grpc: Sequence[Any] | None
    storage: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """The process that serves, in a file; `began` tells it from a later one with its number."""

    pid: int = 0
    began: str | None = None
    port: int = 0

    @classmethod
    def read(cls, folder: Path) -> _State:
        return cls(**read_json(folder / _STATE_FILE))

    @property
    def is_running(self) -> bool:
        return self.began is not None and _began(self.pid) == self.began


def start(
    target: Target,
    data: Path,
    environ: Mapping[str, str],
    grpc: tuple[str, int] | None,
    storage_url: str | None,
) -> dict[str, str]:
    """The environment of the session of a data folder, which is started unless it runs. Raises
    FAILED_PRECONDITION when it does not start."""
    folder = data / FOLDER
    state = _State.read(folder)
    environ = _outside(environ, folder)
    if not state.is_running:
        folder.mkdir(mode=0o700, exist_ok=True)
        work = _Work(dataclasses.astuple(target), state.port, grpc, storage_url)
        write_atomically(folder / _WORK_FILE, json.dumps(dataclasses.asdict(work)).encode())
        state = _start_process(folder, environ)
    return redirect.environment(target, environ, f"127.0.0.1:{state.port}", folder / "roots.pem")


def _outside(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables without those of the session itself, if the shell has them already: its proxy
    must not lead to itself, nor its roots grow by themselves."""
    bundle = str(folder / "roots.pem")
    if bundle not in (environ.get(name) for name in tls.BUNDLE_VARIABLES):
        return dict(environ)
    return {name: value for name, value in environ.items() if name not in redirect.VARIABLES}


def end(data: Path) -> bool:
    """Stops the session and deletes its folder. False: there was none."""
    folder = data / FOLDER
    state = _State.read(folder)
    if state.is_running:
        os.kill(state.pid, signal.SIGTERM)
        clock = OsClock()
        until = clock.monotonic_seconds() + START_SECONDS_MAX
        while state.is_running and clock.monotonic_seconds() < until:
            clock.sleep(0.05)
    is_there = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return is_there


def _start_process(folder: Path, environ: Mapping[str, str]) -> _State:
    (folder / _STATE_FILE).unlink(missing_ok=True)
    with (folder / _LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            python_command("-m", "podyard.cli.redirect.session", str(folder)),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    clock = OsClock()
    until = clock.monotonic_seconds() + START_SECONDS_MAX
    while clock.monotonic_seconds() < until and process.poll() is None:
        state = _State.read(folder)
        if state.pid == process.pid:
            process.returncode = 0  # it lives on: not ours to wait for
            return state
        clock.sleep(0.05)
    process.kill()
    process.wait()
    raise failed_precondition(
        f"the session did not start; {folder / _LOG_FILE} says why, and `podyard env --session` "
        "tries again"
    )


def _began(pid: int) -> str | None:
    """The start of a process, as the kernel or `ps` says it; None: there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    done = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def serve(folder: Path) -> None:
    """Serve until SIGTERM, or until the Podyard has been away for half a minute."""
    work = _Work(**read_json(folder / _WORK_FILE))
    (folder / _WORK_FILE).unlink()  # it holds the token
    target, grpc = Target(*work.target), work.grpc
    metadata = redirect.look_around(target)
    authority = _authority(folder)
    contexts, _ = redirect.make_contexts(folder, os.environ, grpc is not None, True, authority)

    def make_proxy(port: int) -> Proxy:
        _SessionProxy.own_port = port
        return _SessionProxy(
            target.url,
            contexts,
            metadata,
            Upstream.of(os.environ),
            None if grpc is None else (str(grpc[0]), int(grpc[1])),
            True,
            work.storage,
        )

    try:
        proxy = make_proxy(work.port)
    except OSError:  # another process has taken the port meanwhile
        proxy = make_proxy(0)
    proxy.start()
    own = _State(os.getpid(), _began(os.getpid()), proxy.server_address[1])
    write_atomically(folder / _STATE_FILE, json.dumps(dataclasses.asdict(own)).encode())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _wait_for_the_end(target)
    finally:
        proxy.close()


class _SessionProxy(Proxy):
    allow_reuse_address = True  # the port of the last time, whose connections may linger


def _wait_for_the_end(target: Target) -> None:
    clock, absent = OsClock(), 0
    while absent < ABSENT_LOOKS_MAX:
        clock.sleep(LOOK_SECONDS)
        client = Client(target, timeout_seconds=LOOK_SECONDS)
        try:
            client.call("GET", "/healthz")
            absent = 0
        except PodyardError:
            absent += 1
        finally:
            client.close()


def _authority(folder: Path) -> Authority:
    """The session's authority, made when there is none that lasts. It may certify Google's hosts
    only, and no trust store has it."""
    now = tls.moment(OsClock())
    key, certificate = folder / _KEY_FILE, folder / _CERTIFICATE_FILE
    try:
        kept = Authority(certificate.read_bytes(), key.read_bytes())
        if kept.lasts(now, LEFT_SECONDS_MIN):
            return kept
    except (FileNotFoundError, ValueError):
        pass
    fresh = Authority.make("Podyard, for a session", now, AUTHORITY_DAYS, DOMAINS)
    write_atomically(key, fresh.key, 0o600)
    write_atomically(certificate, fresh.certificate)
    return fresh


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
