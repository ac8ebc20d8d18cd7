"""`podyard run`: one command, to which Google's TPU hosts are a Podyard.

SkyPilot, Ray and others have https://tpu.googleapis.com and the metadata server written into their
code. For the life of the command a proxy on loopback stands for them (`redirect/proxy.py`), told to
the command by the variables that HTTP libraries read; nothing of the machine is changed, and no
root is needed. Google's other hosts get nothing of it (`redirect/google.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podyard.base.clock import OsClock
from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.output import say
from podyard.cli.redirect import google as redirect_google
from podyard.cli.redirect import proxy as redirect_proxy
from podyard.cli.redirect import tls as redirect_tls
from podyard.cli.redirect.metadata import Metadata
from podyard.cli.redirect.python import past_the_proxy
from podyard.cli.redirect.tunnel import Upstream
from podyard.http.certificates import Authority
from podyard.programs.launch import LaunchEnd, launch

EXIT_NOT_FOUND = 127  # as shells say
EXIT_NOT_EXECUTABLE = 126
# What needs no proxy. The range holds the addresses of hosts: curl (from 7.86), requests and Go
# read it. urllib and httpx compare whole names; what they send here is passed on to where it is
# (`redirect_tunnel.Upstream`).
NO_PROXY = ("127.0.0.1", "localhost", "::1", "127.0.0.0/8")


@contextlib.contextmanager
def redirect(
    target: Target,
    environ: Mapping[str, str],
    grpc: tuple[str, int] | None = None,
    *,
    pass_google: bool = False,
    storage_url: str | None = None,
) -> Iterator[dict[str, str]]:
    """The environment in which Google's TPU hosts lead to `target`, as long as the context lasts.

    `grpc` is where the target's gRPC front listens, in the clear; without one, gRPC to
    tpu.googleapis.com fails.
    What is asked of Google's other hosts is answered here, and said at the end where it was
    refused; with `pass_google` it is passed on to them, with all that the command puts into it.
    `storage_url`: where Cloud Storage's APIs are.
    """
    metadata = look_around(target)
    # The names of its files are nobody else's to read: mkdtemp makes it for this user only.
    with tempfile.TemporaryDirectory(prefix="podyard-run-") as folder:
        has_grpc = grpc is not None
        contexts, bundle = make_contexts(Path(folder), environ, has_grpc, not pass_google)
        proxy = redirect_proxy.Proxy(
            target.url, contexts, metadata, Upstream.of(environ), grpc, not pass_google, storage_url
        )
        proxy.start()
        try:
            yield environment(target, environ, proxy.address, bundle)
        finally:
            proxy.close()
            if line := proxy.refusals.line():
                say(line)


def make_contexts(
    folder: Path,
    environ: Mapping[str, str],
    has_grpc: bool,
    has_google: bool,
    authority: Authority | None = None,
) -> tuple[list[ssl.SSLContext], Path]:
    """(contexts for TPU hosts and for Google's other ones, the file with the roots to trust: those
    of the environment and the authority's)."""
    # HTTP/1.1 goes first: who can speak both means REST, and only gRPC insists on HTTP/2.
    protocols = ("http/1.1", "h2") if has_grpc else ("http/1.1",)
    hosts = redirect_proxy.REDIRECTED + (redirect_google.CERTIFICATE_NAMES if has_google else ())
    offered = (protocols, ("http/1.1",))
    contexts, certificate = redirect_tls.server_contexts(
        folder, hosts, offered, OsClock(), authority
    )
    bundle = folder / "roots.pem"
    bundle.write_bytes(redirect_tls.roots(environ) + b"\n" + certificate)
    return contexts, bundle


PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
_NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")
_METADATA_VARIABLES = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
# All that `environment` sets besides the project.
VARIABLES = (
    *PROXY_VARIABLES, *_NO_PROXY_VARIABLES, *_METADATA_VARIABLES, *redirect_tls.BUNDLE_VARIABLES,
)  # fmt: skip


def environment(
    target: Target, environ: Mapping[str, str], address: str, bundle: Path
) -> dict[str, str]:
    """`environ`, with the proxy at `address`, what it answers for, and whom to trust."""
    own_host = urlsplit(target.url).hostname or ""
    without_proxy = ",".join(dict.fromkeys((*NO_PROXY, own_host)))
    proxy = f"http://{address}"
    found = {
        **environ,
        **dict.fromkeys(PROXY_VARIABLES, proxy),
        **dict.fromkeys(_NO_PROXY_VARIABLES, without_proxy),
        **dict.fromkeys(redirect_tls.BUNDLE_VARIABLES, str(bundle)),
        **dict.fromkeys(_METADATA_VARIABLES, address),
        "GOOGLE_CLOUD_PROJECT": target.project,
    }
    if not _is_key_of(target, found.get("GOOGLE_APPLICATION_CREDENTIALS")):
        found.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
    return found


def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs a command and passes signals on to it. Returns its exit code, or minus the signal that
    it died of."""
    if packages := past_the_proxy(command[0], environ):
        say(
            f"podyard run: WARNING: {packages} has httplib2 without PySocks: it ignores the proxy "
            "in silence, and "
            "sends what is meant for Podyard to Google, with your token; `pip install "
            "pysocks` mends it"
        )
    return start(command, [environ]).code


def start(
    command: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    look: Callable[[], None] | None = None,
) -> LaunchEnd:
    """`launch`, with the exit codes of shells for a command that cannot be started."""
    try:
        return launch(command, environments, OsClock(), look)
    except FileNotFoundError:
        say(f"podyard run: {command[0]} was not found")
        return LaunchEnd(EXIT_NOT_FOUND, 0)
    except OSError as error:
        say(f"podyard run: {command[0]} cannot be run: {error.strerror}")
        return LaunchEnd(EXIT_NOT_EXECUTABLE, 0)


def end_like(code: int) -> int:
    """Ends this process as the command ended: returns its exit code, or dies of the signal that it
    died of."""
    if code < 0:
        sys.stdout.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left one, if it was to
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code


def look_around(target: Target) -> Metadata:
    """Return what the metadata server says; raises what the API refuses, so that a command does not
    start in vain."""
    client = Client(target)
    try:
        email = str(client.call("GET", "/podyard/v1/whoami")["email"])
        projects: list[dict[str, Any]] = client.call("GET", "/podyard/v1/projects")["projects"]
    finally:
        client.close()
    numbers = {item["projectId"]: item["projectNumber"] for item in projects}
    if target.project not in numbers:
        say(f"podyard run: {email} sees no project {target.project!r}; its number is said to be 0")
    number = str(numbers.get(target.project, "0"))
    return Metadata(target.project, number, target.location, email, target.token)


def _is_key_of(target: Target, path: str | None) -> bool:
    """Return whether the file is a service-account key that the target made: only such a one is
    good there."""
    if not path:
        return False
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and str(found.get("token_uri", "")).startswith(f"{target.url}/")
