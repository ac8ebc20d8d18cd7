"""`podyard agent`: machines that run replicas and hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from podyard.base import agent_identity, reach, this_machine
from podyard.base.agent_identity import AgentIdentity
from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.ids import check_resource_id
from podyard.cli.kit.client import LOCATION_DEFAULT, PROJECT_DEFAULT, Client, Target
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, settings_of, target_options
from podyard.cli.kit.output import emit, say
from podyard.domain.agent import check_address, is_loopback, replicas_bound
from podyard.http import trust
from podyard.settings import HOSTS_MAX, REPLICAS_MAX

_COLUMNS = {
    "AGENT": "agent", "STATE": "state", "ADDRESS": "bindAddress", "REPLICAS": "replicas",
    "REPLICAS_MAX": "replicasMax",
    "HOSTS": "hosts", "CORES": "cores", "SEEN": "seenTime", "PROBLEM": "problem|text",
}  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_PORTS = {"http": 80, "https": 443}
_DATABASE = "podyard.db"


@click.group(cls=CommandGroup, default="list")
def agent() -> None:
    """Manage the machines that run replicas and hosts."""


@agent.command(name="list")
@target_options
@lists(_COLUMNS)
def list_agents(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List the agents."""
    found: list[Item] = client_of(data, project, location).call("GET", "/podyard/v1/agents")[
        "agents"
    ]
    return found


@agent.command()
@click.argument("name")
@target_options
@output_option
def describe(
    name: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show an agent: its machine, its state, and what runs on it."""
    found = client_of(data, project, location).call("GET", _path(name))
    emit(found, "yaml" if output == "table" else output)


@agent.command()
@click.argument("name")
@target_options
def drain(name: str, data: str | None, project: str | None, location: str | None) -> None:
    """Place nothing new on an agent. What runs there stays until it ends."""
    found = client_of(data, project, location).call("POST", f"{_path(name)}:drain", {})
    say(
        f"agent [{name}] is draining: {found['replicas']} replicas and {found['hosts']} hosts "
        "still run on it"
    )


@agent.command()
@click.argument("name")
@target_options
def resume(name: str, data: str | None, project: str | None, location: str | None) -> None:
    """Place replicas and hosts on an agent again."""
    client_of(data, project, location).call("POST", f"{_path(name)}:resume", {})
    say(f"agent [{name}] takes replicas and hosts again")


@agent.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also end what runs on it.")
@target_options
def remove(
    name: str, force: bool, data: str | None, project: str | None, location: str | None
) -> None:
    """Remove an agent. Its machine can join again with a new token."""
    client_of(data, project, location).call("POST", f"{_path(name)}:remove", {"force": force})
    say(f"removed agent [{name}]")


@agent.command()
@click.option(
    "--ttl", metavar="DURATION", help="Lifetime of the token, for example 30m (default: 1h)."
)
@target_options
@output_option
def token(
    ttl: str | None, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Create a one-time token, and print the command with which another machine joins."""
    client = client_of(data, project, location)
    found = client.call("POST", "/podyard/v1/agents:createJoinToken", {"ttl": ttl} if ttl else {})
    if output != "table":
        emit(found, output)
        return
    click.echo(f"podyard agent join {found['url']} --token {found['token']}")
    say(
        "Run this on the machine that is to join. The token works once, until "
        f"{found['expireTime']}."
    )


@agent.command()
@click.argument("url", required=False)
@click.option(
    "--token", "join_token", metavar="TOKEN", help="One-time token of `podyard agent token`."
)
@click.option("--name", help="Name of the agent (default: the machine's name).")
@click.option(
    "--advertise", metavar="ADDRESS", help="Address at which other machines reach this one."
)
@click.option(
    "--data",
    metavar="DIR",
    help="Data folder of the agent (default: PODYARD_DATA, else the user's).",
)
@click.option("--replicas-max", type=click.IntRange(0, 10_000), help="Most replicas at a time.")
@click.option("--hosts-max", type=click.IntRange(0, 10_000), help="Most hosts at a time.")
@click.option(
    "--cores", type=click.IntRange(1), help="CPU cores to declare, at most what the machine has."
)
@click.option("--memory", type=click.IntRange(1), metavar="MIB", help="Memory to declare in MiB.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the machine; may be repeated.",
)
@click.option("--ca", metavar="FILE", help="Certificate authority of the API (PEM).")
@click.option(
    "--detach", is_flag=True, help="Run in the background. Stop it with `podyard down --data DIR`."
)
def join(  # noqa: PLR0913
    url: str | None,
    join_token: str | None,
    name: str | None,
    advertise: str | None,
    data: str | None,
    replicas_max: int | None,
    hosts_max: int | None,
    cores: int | None,
    memory: int | None,
    labels: tuple[str, ...],
    ca: str | None,
    detach: bool,
) -> int:
    """Run the agent of this machine. With URL and --token it joins first; later starts need
    neither."""
    from podyard.stack.agent_supervisor import run
    from podyard.stack.detached import start_detached

    folder = _folder(data)
    path = folder / agent_identity.FILE
    identity = agent_identity.load(path)
    if join_token is None and identity is None:
        raise click.UsageError(
            f"nothing has joined from {folder} yet: pass URL and --token (`podyard agent token`)"
        )
    if join_token is not None:
        if url is None:
            raise click.UsageError("URL is missing: podyard agent join URL --token TOKEN")
        if identity is not None:
            raise failed_precondition(
                f"agent {identity.agent} has joined {identity.url} from {folder} already: start "
                "it again with "
                f"`podyard agent join --data {folder}`, choose another --data folder, or delete "
                f"{path} if removed"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity = _join(
            url, join_token, folder, name, advertise, replicas_max, hosts_max, cores or 0,
            (memory or 0) << 20,
            _labels(labels), ca,
        )  # fmt: skip
        agent_identity.save(path, identity)
        say(f"agent {identity.agent} has joined {identity.url}; its identity is in {path}")
    assert identity is not None
    settings = settings_of(str(folder))
    if detach:
        state = start_detached(
            ["agent", "join", "--data", str(folder)], folder, "podyard agent join"
        )
        if isinstance(state, int):
            return state
        say(f"agent {identity.agent} runs in the background  (data {folder})")
        return 0
    return run(settings, identity, path)


def _join(  # noqa: PLR0913
    url: str,
    join_token: str,
    folder: Path,
    name: str | None,
    advertise: str | None,
    replicas_max: int | None,
    hosts_max: int | None,
    cores: int,
    memory_bytes: int,
    labels: dict[str, str],
    ca: str | None,
) -> AgentIdentity:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.hostname is None:
        raise invalid(f"URL {url!r} must begin with https://")
    secret, _, digest = join_token.partition(".")
    authority = _authority(url, digest, ca)
    try:
        address = advertise or this_machine.address_towards(
            parts.hostname, parts.port or _PORTS[parts.scheme]
        )
    except OSError as error:
        raise PodyardError(
            Code.UNAVAILABLE, f"{parts.hostname} cannot be reached: {error.strerror}"
        ) from None
    check_address(address)
    clock = OsClock()
    declared = this_machine.declaration(
        folder, clock, cores_said=cores, memory_said=memory_bytes, labels=labels, runtimes=()
    )
    most = replicas_bound(int(str(declared["cores"])), int(str(declared["memoryBytes"])))
    replicas = min(REPLICAS_MAX, most) if replicas_max is None else replicas_max
    hosts = HOSTS_MAX if hosts_max is None else hosts_max
    found = _ask(url, authority, folder, address, {
        "token": secret,
        "name": name or _default_name(),
        "replicasMax": replicas,
        "hostsMax": hosts,
        "bindAddress": address,
        "pid": os.getpid(),
        "machine": declared,
    })  # fmt: skip
    for warning in found["warnings"]:
        say(f"warning: {warning}")
    return AgentIdentity(
        agent=str(found["agent"]),
        url=url.rstrip("/"),
        token=str(found["token"]),
        authority=authority,
        advertise=address,
        broker_url=str(found["brokerUrl"]),
        replicas_max=replicas,
        hosts_max=hosts,
        cores=cores,
        memory_bytes=memory_bytes,
        labels=labels,
        replica_lease_seconds=float(found["replicaLeaseSeconds"]),
        issued_nanos=clock.now().nanos,
    )


def _ask(
    url: str, authority: str, folder: Path, address: str, body: dict[str, Any]
) -> dict[str, Any]:
    """The answer to the join, while the API can dial `address`."""
    if authority:
        path = folder / "authority.pem"
        path.write_text(authority, encoding="ascii")
        os.environ[trust.CA_VARIABLE] = str(path)
    client = Client(Target(url, "", PROJECT_DEFAULT, LOCATION_DEFAULT))
    try:
        with reach.answering(address) as (port, number):
            probe = {"port": port, "number": number}
            return client.call("POST", "/podyard/v1/agents:join", {**body, "probe": probe})
    except OSError as error:
        text = (
            f"cannot listen at the advertised address {address}: {error.strerror}; pass one of "
            "this machine's"
        )
        raise failed_precondition(text) from None
    finally:
        client.close()


def _authority(url: str, digest: str, ca: str | None) -> str:
    """The certificate that signs the API's, by its fingerprint; empty: the machine's own roots, or
    no TLS."""
    if url.startswith("http:"):
        if not is_loopback(urlsplit(url).hostname or ""):
            raise invalid(
                f"{url} has no TLS: the token would go over the network in plain text; use https://"
            )
        return ""
    if ca is not None:
        try:
            return Path(ca).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--ca: cannot read {ca}: {error}") from None
    return trust.fetch_authority(url, f"sha256:{digest}") if digest else ""


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--label: {text!r} is not KEY=VALUE")
        found[key] = value
    return found


def _folder(data: str | None) -> Path:
    """The agent's data folder. Raises FAILED_PRECONDITION for a platform's own."""
    text = data or os.environ.get("PODYARD_DATA")
    if text:
        folder = Path(text).expanduser().absolute()
    else:
        from platformdirs import user_data_path

        folder = user_data_path("podyard-agent", appauthor=False)
    if (folder / _DATABASE).exists():
        text = f"{folder} is the data folder of a platform: choose another with --data"
        raise failed_precondition(text)
    return folder


def _default_name() -> str:
    """The machine's name as an id."""
    text = _NOT_IN_NAMES.sub("-", this_machine.host_name().split(".")[0].lower()).strip("-")
    text = text if text[:1].isalpha() else f"machine-{text}".rstrip("-")
    return check_resource_id(text[:63].rstrip("-"), "name")


def _path(name: str) -> str:
    return f"/podyard/v1/agents/{quote(name, safe='')}"


COMMANDS = {"agent": agent, "agents": agent}
