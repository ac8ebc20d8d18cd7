"""An agent: our process on a real machine, which runs replicas and hosts. What it may declare, and
what fences it."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping, Sequence
from enum import StrEnum

from podyard.base.clock import RealTime
from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.domain.machine import Machine

# leases are counted by each machine's own clock, but logs and certificates are not
CLOCK_SECONDS_MAX = 300.0
CLOCK_SECONDS_WARNED = 30.0
REPLICAS_PER_CORE_MAX = 8  # beyond it a replica cannot report within its lease
REPLICA_BYTES_MIN = 192 << 20  # what the smallest recipe takes with JAX loaded
REPLICAS_OF_ANY_MACHINE = 16  # so many may always be declared: a laptop survives them
LABELS_MAX = 64


class AgentState(StrEnum):
    READY = "READY"
    DRAINING = "DRAINING"
    REMOVED = "REMOVED"


AGENT = Machine(
    "agent",
    AgentState.READY,
    {
        AgentState.READY: {"drain": AgentState.DRAINING, "remove": AgentState.REMOVED},
        AgentState.DRAINING: {"resume": AgentState.READY, "remove": AgentState.REMOVED},
        AgentState.REMOVED: {"join": AgentState.READY},
    },
)
GONE = "GONE"  # what is shown of an agent that is silent: it may speak at any time


@dataclasses.dataclass(frozen=True, slots=True)
class AgentRecord:
    """`fence` counts the processes of this name: an older one is refused. `seen`: when it was last
    heard of.

    `release`: its version of Podyard. `place` tells one process' machine and folder from every
    other. `kernels`: what decides the bits of its results. `clock_offset_millis`: how far its clock
    is ahead of the API's. `joined` is None for the platform's own agent. `problem`: what was last
    refused to a process of this name.
    """

    agent_id: str
    bind_address: str
    replicas_max: int
    hosts_max: int
    pid: int
    fence: int
    registered: RealTime
    seen: RealTime
    state: AgentState = AgentState.READY
    version: int = 1
    release: str = ""
    host_name: str = ""
    place: str = ""
    cores: int = 0
    memory_bytes: int = 0
    kernels: str = ""
    runtimes: Sequence[str] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clock_offset_millis: int = 0
    joined: RealTime | None = None
    joined_by: str = ""
    problem: str = ""

    def shown_state(self, now: RealTime, lease_seconds: float) -> str:
        """As people see it: a silent agent is GONE, whatever it was told to be."""
        silent = self.seen < now.plus_seconds(-lease_seconds)
        return GONE if silent and self.state is not AgentState.REMOVED else self.state.value

    @property
    def takes_work(self) -> bool:
        """Return whether new replicas and hosts may be placed on it."""
        return self.state is AgentState.READY

    @property
    def has_engine(self) -> bool:
        """Return whether its machine has JAX, which recipes need (`this_machine.kernels`)."""
        return "jaxlib absent" not in self.kernels

    @property
    def company(self) -> str:
        """Agents of one company may run one gang: their kernels give the same bits, and they reach
        each other."""
        return f"{'this machine only ' if is_loopback(self.bind_address) else ''}{self.kernels}"


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """An agent's declaration of itself and its machine. `cores_measured`, `memory_bytes_measured`:
    what the machine has; the others may be less, if its operator says so."""

    release: str
    host_name: str
    place: str
    cores: int
    cores_measured: int
    memory_bytes: int
    memory_bytes_measured: int
    kernels: str
    runtimes: tuple[str, ...]
    labels: Mapping[str, str]
    now: RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class JoinToken:
    """A one-time token to join with. `used_by`: the agent that has used it."""

    token_hash: str
    created: RealTime
    created_by: str
    expires: RealTime
    used: RealTime | None = None
    used_by: str | None = None


def check_release(theirs: str, ours: str) -> None:
    """Raises FAILED_PRECONDITION unless both are of one minor version: what they say to each other
    may differ."""
    if _minor(theirs) != _minor(ours):
        raise failed_precondition(
            f"this machine has Podyard {theirs or 'of an unknown version'} and the API has {ours}: "
            f"install podyard=={ours} on it"
        )


def check_declared(declared: Declared, replicas_max: int) -> None:
    """Raises INVALID_ARGUMENT for an agent that claims more than its machine has."""
    for what, claimed, measured in (
        ("cores", declared.cores, declared.cores_measured),
        ("bytes of memory", declared.memory_bytes, declared.memory_bytes_measured),
    ):
        if claimed > measured:
            raise invalid(
                f"{declared.host_name} declares {claimed} {what} and has {measured}: declare "
                "at most that"
            )
    most = replicas_bound(declared.cores, declared.memory_bytes)
    if replicas_max > most:
        raise invalid(
            f"{declared.host_name} declares room for {replicas_max} replicas; with "
            f"{declared.cores} cores and "
            f"{declared.memory_bytes >> 20} MiB of memory it can run at most {most}: use "
            f"--replicas-max {most}",
            "replicasMax",
        )


def replicas_bound(cores: int, memory_bytes: int) -> int:
    """The most replicas that a machine may declare room for."""
    by_cores = max(REPLICAS_OF_ANY_MACHINE, REPLICAS_PER_CORE_MAX * cores)
    return max(1, min(by_cores, memory_bytes // REPLICA_BYTES_MIN))


def check_clock(theirs: RealTime, ours: RealTime) -> int:
    """Return how far their clock is ahead, in milliseconds. Raises FAILED_PRECONDITION when it is
    too far off."""
    seconds = theirs.seconds_since(ours)
    if abs(seconds) > CLOCK_SECONDS_MAX:
        raise failed_precondition(
            f"this machine's clock is {abs(seconds):.0f} s "
            f"{'ahead of' if seconds > 0 else 'behind'} the API's; "
            f"at most {CLOCK_SECONDS_MAX:.0f} s are allowed: set it by NTP and try again"
        )
    return round(seconds * 1000)


def clock_warning(offset_millis: int) -> str:
    """Empty while the clock is close enough."""
    seconds = offset_millis / 1000
    if abs(seconds) <= CLOCK_SECONDS_WARNED:
        return ""
    return (
        f"its clock is {abs(seconds):.0f} s "
        f"{'ahead of' if seconds > 0 else 'behind'} the API's: "
        "set it by NTP"
    )


def check_address(text: str) -> str:
    """An address that other machines can dial, as it is written. Raises INVALID_ARGUMENT."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise invalid(
            f"advertised address {text[:64]!r} is not an IP address", "advertiseAddress"
        ) from None
    if address.is_unspecified or address.is_multicast or address.is_link_local:
        raise invalid(
            f"advertised address {text} is none that other machines can reach", "advertiseAddress"
        )
    return text


def unreachable(address: str, why: str) -> PodyardError:
    return failed_precondition(
        f"the API cannot reach this machine at its advertised address {address}: {why}. "
        "Pass an address that the API and the other machines reach with --advertise"
    )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _minor(release: str) -> tuple[str, ...]:
    return tuple(release.split(".")[:2])
