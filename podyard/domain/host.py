"""A host (Google's worker, or TPU VM) as the programs on it see it: environment, `tpu-env`, names,
who may log in.

Pure: the metadata server, scripts, ssh and the command line all say the same, because all ask here.
The keys of `tpu-env` and their form are those of a recorded v4-256; what JAX, torch_xla and Ray
read is among them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import RealTime
from podyard.domain.disk import TPU_BOOT_DISK_GB, HostDisk
from podyard.domain.node import INTERRUPTIBLE
from podyard.hardware.accelerator_types import AcceleratorType, kind_of

DEFAULT_ACCOUNTS = "developer.gserviceaccount.com"  # of the accounts that hosts have by default
TENSORFLOW_PORT = 8470  # the port that Cloud TPU shows on the wire for every worker
MEGASCALE_PORT = 8081  # Ray's DEFAULT_MEGASCALE_PORT
RUNTIME_METRICS_PORT = 8431  # of the first chip; the next chips have the next ports
STARTUP_SCRIPT = "startup-script"
SHUTDOWN_SCRIPT = "shutdown-script"
SSH_KEYS = "ssh-keys"
_OLD_SSH_KEYS = "sshKeys"
_BLOCK_PROJECT_KEYS = "block-project-ssh-keys"
_TRUE = ("true", "t", "1", "yes", "y")  # of Compute Engine's metadata that are switches
GUEST_ATTRIBUTES_SWITCH = "enable-guest-attributes"
ADDRESS_VARIABLE = "PODYARD_ADDRESS"  # the host's own address, for podyard/programs
HOST_KEYS_NAMESPACE = "hostkeys"
# gcloud takes the name for a tunnel of IAP from the key `hostname`, in whichever namespace.
INVENTORY_NAMESPACE = "guestInventory"
# Where a slice's JAX coordinator listens: below the ports that Linux and macOS hand out by
# themselves.
_COORDINATOR_PORTS = range(10_000, 30_000)
SSH_PORT = 22  # what gcloud dials
# where a host listens for ssh when port 22 of its address cannot be opened
SSH_PORT_WITHOUT_ROOT = 8722
# Linux answers on all of 127.0.0.0/8, so that each host has an address, and all ports of it, for
# itself.
HAS_HOST_ADDRESSES = sys.platform == "linux"
# of a host's ports: where its agent connects the slice with hosts of other agents
TUNNEL = "tunnel"
NOTEBOOK = "notebook"  # of a host's ports, and what `ssh -L` calls it
# The user of a host's ssh server that the API is for tunnels into the box. No person can have this
# name: it is none that Linux takes.
RELAY_USER = "podyard:relay"
LOOPBACK = "127.0.0.1"
_FIRST_ADDRESS = int(ipaddress.IPv4Address("127.128.0.0"))
ADDRESSES = 2**23 - 1  # 127.128.0.0/9 without its last one, the broadcast address of 127.0.0.0/8
# Reserved for benchmarks of networks (RFC 2544): no machine of the internet has one of these
# addresses.
_NOWHERE = ipaddress.IPv4Network("198.18.0.0/15")
# The recorded v4-256 says 'false' although its shape could be twisted: the word speaks of a twist
# that was asked for.
TOPOLOGY_ALT = "false"
DEFAULT_SCOPES = (
    "https://www.googleapis.com/auth/devstorage.read_write",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/service.management",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/pubsub",
    "https://www.googleapis.com/auth/cloud-platform",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Multislice:
    """The place of a node among the slices of one request. `coordinator_ip`: where the first host
    of the first slice is reached on this machine, and `coordinator_internal_ip` from boxes."""

    slice_id: int
    slice_count: int
    coordinator_ip: str
    coordinator_internal_ip: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a node that its hosts know, as JSON can carry them. `external_ips` is empty when
    it has none; `maintenance_workers` are the hosts that a maintenance event is on, `metadata_down`
    those whose metadata servers answer nobody, by a fault. `reclaimed`: it is taken back, or has
    got notice that it will be. `host_addresses`: where each host listens on this machine.
    `project_metadata`: of Compute Engine's project (`ssh-keys` of all its hosts).
    `instance_names`, `instance_numbers`, `machine_type`: of Compute Engine's instances, whose hosts
    these are; else empty. `own`: what single instances of a slice have for themselves."""

    node_key: str
    project: str
    project_number: int
    zone: str
    node_id: str
    number: int
    state: str
    accelerator_type: str
    topology: str
    runtime_version: str
    usage_class: str
    description: str
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    service_account: str
    scopes: tuple[str, ...]
    network: str
    internal_ips: tuple[str, ...]
    external_ips: tuple[str, ...]
    maintenance_workers: tuple[int, ...] = ()
    upcoming_maintenance: Mapping[str, Any] | None = None
    multislice: Multislice | None = None
    metadata_down: tuple[int, ...] = ()
    reclaimed: bool = False
    host_addresses: tuple[str, ...] = ()
    project_metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    disks: tuple[HostDisk, ...] = ()
    boot_disk_gb: int = TPU_BOOT_DISK_GB
    instance_names: tuple[str, ...] = ()
    instance_numbers: tuple[int, ...] = ()
    machine_type: str = ""
    own: tuple[Mapping[str, Any], ...] = ()

    def of_host(self, index: int) -> NodeFacts:
        """The same as one host knows it: with its metadata and tags."""
        own = self.own[index] if index < len(self.own) else {}
        if not own:
            return self
        return dataclasses.replace(self, metadata=own["metadata"], tags=tuple(own["tags"]))

    @property
    def kind(self) -> AcceleratorType:
        return kind_of(self.accelerator_type, self.topology, len(self.internal_ips))

    def host_name(self, index: int) -> str:
        """The name of a host: its instance's, else that of a worker of the node."""
        names = self.instance_names
        return names[index] if names else host_name(self.node_id, index)

    @property
    def preemptible(self) -> bool:
        return self.usage_class in INTERRUPTIBLE

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def digest(self) -> str:
        """The same facts give the same text: what has not changed need not be sent again."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:24]


_OF_INSTANCES = ("instance_names", "instance_numbers", "own")


def facts_of_json(data: Mapping[str, Any]) -> NodeFacts:
    names = (
        "tags", "scopes", "internal_ips", "external_ips", "maintenance_workers", "metadata_down",
        "host_addresses",
    )  # fmt: skip
    several = {name: tuple(data[name]) for name in names}
    several |= {name: tuple(data.get(name, ())) for name in _OF_INSTANCES}
    multislice = None if data["multislice"] is None else Multislice(**data["multislice"])
    disks = tuple(
        HostDisk(**{**disk, "names": tuple(disk["names"]), "hosts": tuple(disk["hosts"])})
        for disk in data["disks"]
    )
    return NodeFacts(**{**data, **several, "multislice": multislice, "disks": disks})


def host_address(base: int, number: int) -> str:
    """Return where host `number` of a yard listens: a loopback address of 127.128.0.0/9 (macOS: the
    one that all share).

    `base` is where the yard's addresses begin. It is drawn at random for each yard, so that two
    yards on one machine have different addresses: with 10,000 hosts each they overlap in 1 of 400
    pairs.
    """
    return _loopback(base + number) if HAS_HOST_ADDRESSES else LOOPBACK


def external_address(base: int, number: int) -> str:
    """The address that clients outside dial: the host's own, or, without one, an address of
    nobody."""
    return _loopback(base + number) if HAS_HOST_ADDRESSES else nowhere(base + number)


def nowhere(number: int) -> str:
    """An address that leads to no machine: one of 198.18.0.0/15."""
    return str(_NOWHERE[number % _NOWHERE.num_addresses])


def _loopback(number: int) -> str:
    return str(ipaddress.IPv4Address(_FIRST_ADDRESS + number % ADDRESSES))


def address_number(address: str) -> int:
    """The number of a loopback address that `host_address` gave."""
    return int(ipaddress.IPv4Address(address)) - _FIRST_ADDRESS


def default_service_account(project_number: int) -> str:
    """The Compute Engine default service account, which a node has unless it names another."""
    return f"{project_number}-compute@{DEFAULT_ACCOUNTS}"


def host_name(node_id: str, index: int) -> str:
    return f"{node_id}-w-{index}"


def worker_network_endpoints(node: NodeFacts) -> str:
    """The triple form: torch_xla reads no other."""
    return ",".join(f"unknown:unknown:{address}" for address in addresses_of(node))


def addresses_of(node: NodeFacts) -> tuple[str, ...]:
    """Return where programs reach the node's hosts, in their order. The internal addresses lead
    nowhere: they are what is left for a node that has no hosts."""
    return node.host_addresses or node.internal_ips


def discovery_url(url: str) -> str:
    """Return what clients of Google's discovery service take from TPU_API_DISCOVERY_URL. Its braces
    are theirs to fill."""
    return f"{url}/$discovery/rest?version={{apiVersion}}"


def tpu_env(node: NodeFacts, index: int) -> dict[str, str]:
    """The attribute `tpu-env` of one worker, in the order of the recording."""
    kind = node.kind
    wrap = wrap_text(kind)
    values = {
        "ACCELERATOR_TYPE": node.accelerator_type,
        "CHIPS_PER_HOST_BOUNDS": kind.chips_per_host_bounds,
        "HOST_BOUNDS": kind.host_bounds,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": kind.chips_per_host_bounds,
        "TPU_PROCESS_BOUNDS": kind.host_bounds,
        "TOPOLOGY": node.topology,
        "TYPE": str(kind.generation.wire_type),
        "WRAP": wrap,
        "TPU_TOPOLOGY_WRAP": wrap,
        "ALT": TOPOLOGY_ALT,
        "TPU_TOPOLOGY_ALT": TOPOLOGY_ALT,
        "CONSUMER_PROJECT_ID": node.project,
        "CONSUMER_PROJECT_NUMBER": str(node.project_number),
        "NODE_ID": node.node_id,
        "UID": str(node.number),
        "WORKER_ID": str(index),
        "ZONE": node.zone,
        "PREEMPTIBLE": str(node.preemptible).lower(),
        "RUNTIME_VERSION": node.runtime_version,
        "TPU_RUNTIME_METRICS_PORTS": metrics_ports(kind),
        "ENABLE_ICI_RESILIENCY": "false",
        "INFERENCE_MODE": "false",
        "INTERNAL": "false",
        "SERVICE_NAME": "tpu.googleapis.com",
        "SOURCE": "",
    }
    return values | megascale_environment(node.multislice)


def tpu_env_text(node: NodeFacts, index: int) -> str:
    """Lines `KEY: 'value'`: Ray looks for the single quotes, torch_xla reads it as YAML."""
    return "".join(f"{name}: '{value}'\n" for name, value in tpu_env(node, index).items())


def worker_environment(
    node: NodeFacts, index: int, *, metadata_address: str | None = None, url: str | None = None
) -> dict[str, str]:
    """The environment of everything that runs on one worker.

    `metadata_address`: `address:port` of its metadata server, once it is materialised.
    XRT_TPU_CONFIG's form is the one that torch_xla's clients of TPU nodes used; nothing emulates
    what it points to.
    """
    if not node.kind.chip_count:
        values = _place_environment(node, index)
        return values | _environment_of_servers(url, metadata_address)
    own = node.host_addresses[index] if HAS_HOST_ADDRESSES and node.host_addresses else None
    values = slice_environment(node.kind, index, addresses_of(node), _coordinator_port(node),
        own) | {
        "TPU_ACCELERATOR_TYPE": node.accelerator_type,
        "PODYARD_TPU": node.accelerator_type,
        "TPU_NAME": node.node_id,
        "COLAB_TPU_ADDR": f"{node.internal_ips[index]}:{TENSORFLOW_PORT}",
        "XRT_TPU_CONFIG": "|".join(
            f"tpu_worker;{i};{ip}:{TENSORFLOW_PORT}" for i, ip in enumerate(node.internal_ips)
        ),
    } | _place_environment(node, index) | megascale_environment(node.multislice)  # fmt: skip
    return values | _environment_of_servers(url, metadata_address)


def _place_environment(node: NodeFacts, index: int) -> dict[str, str]:
    return {
        "PODYARD_PROJECT": node.project,
        "PODYARD_LOCATION": node.zone,
        "PODYARD_NODE": node.node_id,
        "PODYARD_WORKER": str(index),
    }


def _environment_of_servers(url: str | None, metadata_address: str | None) -> dict[str, str]:
    values: dict[str, str] = {}
    if url is not None:
        values |= {"PODYARD_URL": url, "TPU_API_DISCOVERY_URL": discovery_url(url)}
    if metadata_address is not None:
        values |= {"GCE_METADATA_HOST": metadata_address, "GCE_METADATA_IP": metadata_address}
    return values


def slice_environment(
    kind: AcceleratorType,
    index: int,
    addresses: Sequence[str],
    coordinator_port: int,
    own_address: str | None,
) -> dict[str, str]:
    """Return what programs read of the slice that they run on: libtpu's variables, JAX's, and those
    of podyard/programs."""
    devices = kind.chips_per_host * kind.generation.devices_per_chip
    values = {
        "TPU_WORKER_ID": str(index),
        "TPU_WORKER_HOSTNAMES": ",".join(addresses),
        "TPU_ACCELERATOR_TYPE": kind.name,
        "TPU_TOPOLOGY": kind.topology.text,
        "TPU_TOPOLOGY_WRAP": wrap_text(kind),
        "TPU_TOPOLOGY_ALT": TOPOLOGY_ALT,
        "TPU_CHIPS_PER_HOST_BOUNDS": kind.chips_per_host_bounds,
        "TPU_HOST_BOUNDS": kind.host_bounds,
        "TPU_PROCESS_BOUNDS": kind.host_bounds,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": kind.chips_per_host_bounds,
        "TPU_VISIBLE_CHIPS": ",".join(map(str, range(kind.chips_per_host))),
        # torch_xla and libtpu read variables instead of asking metadata.google.internal, which is
        # not here. JAX sets it by itself where it finds no chips (jax/_src/cloud_tpu_init.py), and
        # then goes by TPU_WORKER_HOSTNAMES.
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_RUNTIME_METRICS_PORTS": metrics_ports(kind),
        "CLOUD_TPU_TASK_ID": str(index),
        "PODYARD_TPU": kind.name,
        # where the hook does not run: a plain machine, with as many devices
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COORDINATOR_PORT": str(coordinator_port),
        # XLA sizes its thread pool by it. Two steps in flight need a thread for each device, or
        # their sums never meet.
        "NPROC": str(2 * devices),
    }
    if own_address is not None:
        values[ADDRESS_VARIABLE] = own_address
    return values


def wrap_text(kind: AcceleratorType) -> str:
    """TPU_TOPOLOGY_WRAP, always of three dimensions."""
    wrap = (*kind.topology.wrap, False)[:3]
    return ",".join(str(ring).lower() for ring in wrap)


def guest_attributes_allowed(node: NodeFacts, namespace: str) -> bool:
    """Host keys are published always: gcloud asks for them; everything else needs the attribute
    that switches it on."""
    if namespace == HOST_KEYS_NAMESPACE:
        return True
    return node.metadata.get(GUEST_ATTRIBUTES_SWITCH, "").lower() == "true"


def authorized_keys(text: str, now: RealTime) -> dict[str, tuple[str, ...]]:
    """User -> public keys, of the metadata `ssh-keys`: lines `user:TYPE KEY comment`.

    A line of gcloud's ends in `google-ssh {"userName":..,"expireOn":..}`: past that time it counts
    no more. What cannot be read is left aside, so that one bad line locks nobody else out.
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        user, colon, key = line.strip().partition(":")
        if not colon or not user or " " in user or len(key.split()) < 2:
            continue
        public, _, rest = key.partition(" google-ssh ")
        if rest and _has_expired(rest, now):
            continue
        found.setdefault(user, []).append(" ".join(public.split()[:2]))
    return {user: tuple(keys) for user, keys in found.items()}


def login_keys(node: NodeFacts, now: RealTime) -> dict[str, tuple[str, ...]]:
    """User -> public keys that open the node's hosts, as Compute Engine's guest agent reads them:
    `ssh-keys` of the node and of its project. A node keeps its project's keys out with
    `block-project-ssh-keys`, or by having the older `sshKeys`."""
    texts = [node.metadata.get(name, "") for name in (SSH_KEYS, _OLD_SSH_KEYS)]
    blocks = node.metadata.get(_BLOCK_PROJECT_KEYS, "").lower() in _TRUE
    if not blocks and _OLD_SSH_KEYS not in node.metadata:
        texts += [node.project_metadata.get(name, "") for name in (SSH_KEYS, _OLD_SSH_KEYS)]
    return authorized_keys("\n".join(texts), now)


def with_ssh_key(text: str, user: str, public_key: str) -> str:
    """`ssh-keys` with one more line; the same text when the key is there already."""
    kind, key = public_key.split()[:2]
    lines = [line for line in text.splitlines() if line.strip()]
    if any(line.startswith(f"{user}:{kind} {key}") for line in lines):
        return text
    return "\n".join([*lines, f"{user}:{kind} {key} {user}"])


def attribute_items(attributes: Mapping[str, Mapping[str, str]], path: str) -> list[dict[str, str]]:
    """The guest attributes that a query path covers, in order: `namespace/key`, `namespace/`, or
    nothing for all."""
    parts: Sequence[str] = [part for part in path.split("/") if part]
    return [
        {"namespace": namespace, "key": key, "value": value}
        for namespace, values in sorted(attributes.items())
        for key, value in sorted(values.items())
        if parts in ([], [namespace], [namespace, key])
    ]


def _has_expired(google_ssh: str, now: RealTime) -> bool:
    try:
        expires = str(json.loads(google_ssh)["expireOn"])
        # gcloud writes an offset without its colon.
        if len(expires) > 5 and expires[-5] in "+-":
            expires = f"{expires[:-2]}:{expires[-2:]}"
        return RealTime.from_rfc3339(expires) <= now
    except (ValueError, KeyError, TypeError):
        return True


def metrics_ports(kind: AcceleratorType) -> str:
    return ",".join(str(RUNTIME_METRICS_PORT + chip) for chip in range(kind.chips_per_host))


def _coordinator_port(node: NodeFacts) -> int:
    slices = node.multislice
    return coordinator_port(
        slices.coordinator_ip if slices is not None else f"{addresses_of(node)[0]} {node.number}"
    )


def coordinator_port(name: str) -> int:
    """The port of JAX's coordinator where the program names none: one for each slice, or each
    request of several.

    JAX's own port is the same for all, and its coordinator shares it with others: programs that run
    without podyard/programs would join the one that answers.
    """
    return _COORDINATOR_PORTS[zlib.crc32(name.encode()) % len(_COORDINATOR_PORTS)]


def megascale_environment(slices: Multislice | None) -> dict[str, str]:
    """Return what one of several slices knows of the others."""
    if slices is None:
        return {}
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": f"{slices.coordinator_ip}:{MEGASCALE_PORT}",
        "MEGASCALE_NUM_SLICES": str(slices.slice_count),
        "MEGASCALE_SLICE_ID": str(slices.slice_id),
        "MEGASCALE_PORT": str(MEGASCALE_PORT),
    }
