"""An agent's knowledge of its platform on another machine: one file in its data folder, readable by
its owner only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from podyard.base.errors import PodyardError, failed_precondition
from podyard.base.files import read_json, write_atomically

FILE = "agent.json"
# the file's path, for the processes of an agent that has joined
VARIABLE = "PODYARD_AGENT_IDENTITY"


@dataclasses.dataclass(frozen=True, slots=True)
class AgentIdentity:
    """`authority`: the certificate (PEM) that signs the API's; empty: the machine's own roots, or
    no TLS. `broker_url`: empty where the platform's broker is its own machine's. `cores`,
    `memory_bytes`: 0 is all that the machine has."""

    agent: str
    url: str
    token: str
    authority: str
    advertise: str
    broker_url: str
    replicas_max: int
    hosts_max: int
    cores: int
    memory_bytes: int
    labels: Mapping[str, str]
    replica_lease_seconds: float
    issued_nanos: int  # when the token was issued, by this machine's clock


def load(path: Path) -> AgentIdentity | None:
    """None when there is no file. Raises FAILED_PRECONDITION for one that cannot be used."""
    if not path.exists():
        return None
    found = read_json(path)
    try:
        return AgentIdentity(**found)
    except TypeError:
        raise _damage_error(path) from None


def save(path: Path, identity: AgentIdentity) -> None:
    write_atomically(path, json.dumps(dataclasses.asdict(identity), indent=1).encode())


def authority_path(path: Path, identity: AgentIdentity) -> Path | None:
    """A file with the authority's certificate, next to the identity's; None where there is none to
    trust."""
    if not identity.authority:
        return None
    found = path.with_name("authority.pem")
    write_atomically(found, identity.authority.encode())
    return found


def _damage_error(path: Path) -> PodyardError:
    return failed_precondition(
        f"{path} is damaged: restore it, or remove the agent (`podyard agent remove NAME`) "
        "and join again"
    )
