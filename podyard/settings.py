"""Settings, from the environment. Flags of the command line set the same variables for the
processes they start."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard.base.boxes import BOXES_AUTO, BOXES_OFF, BOXES_ON
from podyard.base.errors import invalid

# of processes of a machine
API, LOOP, AGENT, STORAGE, BROKER = ROLES = ("api", "loop", "agent", "storage", "broker")
GRPC_PORT = 8701
NO_DRIVER = "PostgreSQL needs an extra: pip install 'podyard[postgres]'"
STORAGE_PORT = 8703  # 8702 is that of gcloud's proxy
PUBLIC_PORT = 8743  # of the door: what other machines reach
HTTP_PORT = 8700  # never 8470 to 8482, which TPU clients use themselves
STATE_FILE = "podyard.json"
AGENT_ID = "local"
REPLICAS_MAX = 16  # processes on one machine; a v3-128 still fits, and a laptop survives it
HOSTS_MAX = 1024
CLOCK_MODES = ("local", "system", "virtual")
DEFAULT_FLEET, INSTANT_FLEET = "default", "instant"
FLEET_NAMES = (DEFAULT_FLEET, INSTANT_FLEET)  # fleets that come with Podyard
WEBHOOK_ADDRESSES_ANY, WEBHOOK_ADDRESSES_PUBLIC = "any", "public"
WEBHOOK_ADDRESSES = (WEBHOOK_ADDRESSES_ANY, WEBHOOK_ADDRESSES_PUBLIC)
BOXES = (BOXES_AUTO, BOXES_ON, BOXES_OFF)
BOX_NETWORK_NONE, BOX_NETWORK_PUBLIC, BOX_NETWORK_ANY = "none", "public", "any"
RUNTIMES_AUTO, RUNTIMES_INSTALLED, RUNTIMES_OFF = "auto", "installed", "off"
RUNTIMES = (RUNTIMES_AUTO, RUNTIMES_INSTALLED, RUNTIMES_OFF)
BOX_NETWORKS = (BOX_NETWORK_NONE, BOX_NETWORK_PUBLIC, BOX_NETWORK_ANY)
LEASE_SECONDS_LEAST = 0.5  # what a busy machine may take between two words of a living process
LEASE_SECONDS_MOST = 600.0
# far beyond the longest round of any process; a shorter limit would kill the merely busy
HEARTBEAT_SECONDS = 60.0
HEARTBEAT_SECONDS_LEAST, HEARTBEAT_SECONDS_MOST = 1.0, 3600.0
KEEP_DAYS_MAX = 36_500  # a hundred years
AUDIT_DAYS = 90  # as long as most questions about what happened are asked
SWITCH = ("0", "1")  # values of variables that are off or on
_PROXY = "PODYARD_BEHIND_PROXY"
# of every process of the platform: its files hold tokens, keys and the work of its users
UMASK = 0o077


@dataclasses.dataclass(frozen=True, slots=True)
class Leases:
    """The seconds of the machine's time that an agent or a replica may be silent before it counts
    as dead."""

    # an agent syncs each second: ten missed ones are a dead agent or machine
    agent_seconds: float = 10.0
    # a replica reports twice a second, and must outlive a restart of the API
    replica_seconds: float = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class Keep:
    """The days of platform time that something is kept; 0: for ever. What bills are made of always
    is."""

    operations_days: int = 30  # after their end: a client that waits for one asks within minutes
    logs_days: int = 0  # lines of a job, after its end: they are a user's work


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings that every process of one Podyard shares. Folders are absolute."""

    data: Path
    database_url: str
    broker_url: str | None = None
    # what `podyard up` runs here; the rest runs elsewhere on the same database
    roles: tuple[str, ...] = ROLES
    fleet: str = DEFAULT_FLEET  # one of FLEET_NAMES, or the absolute path of a fleet file
    clock_mode: str = "local"
    bind_address: str = "127.0.0.1"
    # of the platform's own agent, for agents of other machines
    advertise_address: str | None = None
    port: int = HTTP_PORT
    grpc_port: int | None = None  # None: no gRPC is served
    storage_port: int | None = None  # of Cloud Storage's APIs; None: the usual one, or a free one
    agent_id: str = AGENT_ID
    replicas_max: int = REPLICAS_MAX
    hosts_max: int = HOSTS_MAX
    leases: Leases = Leases()
    keep: Keep = Keep()
    rate_card_path: Path | None = None  # None: the one that comes with Podyard
    machine_card_path: Path | None = None  # None: what jobs take of this machine is not priced
    # A child of `podyard up` that has sent no heartbeat for so long is killed and started again.
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    # `public`: none of this machine's and its neighbours' addresses
    webhook_addresses: str = WEBHOOK_ADDRESSES_ANY
    boxes: str = BOXES_AUTO  # whether each host runs in a box
    # what programs in boxes reach outside: `any` is all but this machine itself
    box_network: str = BOX_NETWORK_NONE
    audit_days: int = AUDIT_DAYS  # how long lines of the audit log are kept
    # The door: the only port that other machines reach. None: there is none.
    public_address: str | None = None
    public_port: int = PUBLIC_PORT
    public_url: str | None = None  # how other machines name the door; None: by its address and port
    tls: bool = False  # the door's certificate is made here, and signed by the yard's own authority
    tls_cert: Path | None = None  # or it is this one
    tls_key: Path | None = None
    behind_proxy: bool = False  # or a proxy in front of the door ends TLS
    datasets: Path | None = None  # None: a folder of the data folder
    # recipes of the platform's owner; None: a folder of the data folder
    programs: Path | None = None
    # environments of runtime versions: made when a host needs one, only used, or neither
    runtimes: str = RUNTIMES_AUTO

    @property
    def database_path(self) -> Path | None:
        """The file of an SQLite database; None for a database server."""
        scheme, _, rest = self.database_url.partition(":///")
        return Path(rest) if scheme.startswith("sqlite") else None

    @property
    def lacks_driver(self) -> bool:
        """Return whether the database is a PostgreSQL server without its driver."""
        is_server = self.database_url.startswith("postgresql")
        return is_server and importlib.util.find_spec("psycopg") is None

    @property
    def token_path(self) -> Path:
        return self.data / "token"

    @property
    def agent_token_path(self) -> Path:
        return self.data / f"agent-{self.agent_id}.token"

    @property
    def state_path(self) -> Path:
        """Return where `podyard up` writes its url, ports and processes once it is ready."""
        return self.data / STATE_FILE

    @property
    def database_record_path(self) -> Path:
        """File with the URL of the database server that `podyard up` used last, for what is run on
        the folder later. It may hold a password."""
        return self.data / "database-url"

    @property
    def fleet_record_path(self) -> Path:
        """Return where `podyard up` writes which fleet it emulates, for what is run on the folder
        later."""
        return self.data / "fleet"

    @property
    def objects_path(self) -> Path:
        return self.data / "objects"

    @property
    def datasets_path(self) -> Path:
        return self.datasets or self.data / "datasets"

    @property
    def programs_path(self) -> Path:
        return self.programs or self.data / "programs"

    @property
    def logs_path(self) -> Path:
        """Return where the lines of jobs' logs are."""
        return self.data / "logs" / "jobs"

    @property
    def tls_path(self) -> Path:
        """The folder of the yard's own authority."""
        return self.data / "tls"

    @property
    def secrets_key_path(self) -> Path:
        """Return what seals secrets of users in the database (base/sealing.py)."""
        return self.data / "secrets.key"

    @property
    def fingerprint_path(self) -> Path:
        """Return where the API writes the fingerprint by which clients trust the door; empty where
        they need none."""
        return self.tls_path / "fingerprint"

    @property
    def templates_path(self) -> Path:
        """Templates of the console, compiled. They can be deleted: the next pages compile theirs
        again."""
        return self.data / "cache" / "templates"

    @property
    def contents_path(self) -> Path:
        return self.data / "contents"

    @property
    def operation_counts_path(self) -> Path:
        """Return where the storage process counts operations until they are in the database."""
        return self.data / "operation-counts"

    def environment(self) -> dict[str, str]:
        """The variables that give another process these settings."""
        values = {
            "PODYARD_DATA": str(self.data),
            "PODYARD_DATABASE_URL": self.database_url,
            "PODYARD_CLOCK": self.clock_mode,
            "PODYARD_FLEET": self.fleet,
            "PODYARD_BIND_ADDRESS": self.bind_address,
            "PODYARD_PORT": str(self.port),
            "PODYARD_AGENT": self.agent_id,
            "PODYARD_REPLICAS_MAX": str(self.replicas_max),
            "PODYARD_HOSTS_MAX": str(self.hosts_max),
            "PODYARD_AGENT_LEASE_SECONDS": str(self.leases.agent_seconds),
            "PODYARD_REPLICA_LEASE_SECONDS": str(self.leases.replica_seconds),
            "PODYARD_HEARTBEAT_SECONDS": str(self.heartbeat_seconds),
            "PODYARD_KEEP_OPERATIONS_DAYS": str(self.keep.operations_days),
            "PODYARD_KEEP_LOGS_DAYS": str(self.keep.logs_days),
            "PODYARD_WEBHOOK_ADDRESSES": self.webhook_addresses,
            "PODYARD_BOXES": self.boxes,
            "PODYARD_BOX_NETWORK": self.box_network,
            "PODYARD_RUNTIMES": self.runtimes,
            "PODYARD_AUDIT_DAYS": str(self.audit_days),
            "PODYARD_ROLES": ",".join(self.roles),
        }
        if self.datasets is not None:
            values["PODYARD_DATASETS"] = str(self.datasets)
        if self.programs is not None:
            values["PODYARD_PROGRAMS"] = str(self.programs)
        if self.advertise_address is not None:
            values["PODYARD_ADVERTISE"] = self.advertise_address
        if self.grpc_port is not None:
            values["PODYARD_GRPC_PORT"] = str(self.grpc_port)
        if self.storage_port is not None:
            values["PODYARD_STORAGE_PORT"] = str(self.storage_port)
        if self.broker_url is not None:
            values["PODYARD_BROKER_URL"] = self.broker_url
        if self.public_address is not None:
            values |= {
                "PODYARD_PUBLIC_ADDRESS": self.public_address,
                "PODYARD_PUBLIC_PORT": str(self.public_port),
            }
        if self.public_url is not None:
            values["PODYARD_PUBLIC_URL"] = self.public_url
        if self.tls_cert is not None and self.tls_key is not None:
            values |= {"PODYARD_TLS_CERT": str(self.tls_cert), "PODYARD_TLS_KEY": str(self.tls_key)}
        values |= {
            name: "1" for name, on in (("PODYARD_TLS", self.tls), (_PROXY, self.behind_proxy)) if on
        }
        if self.rate_card_path is not None:
            values["PODYARD_RATE_CARD"] = str(self.rate_card_path)
        if self.machine_card_path is not None:
            values["PODYARD_MACHINE_CARD"] = str(self.machine_card_path)
        return values


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Raises INVALID_ARGUMENT that names the variable that is wrong."""
    env = os.environ if environ is None else environ
    data = Path(env.get("PODYARD_DATA") or _default_data()).expanduser().absolute()
    clock_mode = env.get("PODYARD_CLOCK") or "local"
    grpc_port, storage_port = env.get("PODYARD_GRPC_PORT"), env.get("PODYARD_STORAGE_PORT")
    if clock_mode not in CLOCK_MODES:
        raise invalid(
            f"PODYARD_CLOCK is {clock_mode!r}: it must be one of {', '.join(CLOCK_MODES)}"
        )
    usual = Leases()
    return Settings(
        data=data,
        database_url=env.get("PODYARD_DATABASE_URL") or f"sqlite:///{data / 'podyard.db'}",
        broker_url=env.get("PODYARD_BROKER_URL") or None,
        roles=roles_of(env.get("PODYARD_ROLES")),
        fleet=fleet_name(env.get("PODYARD_FLEET")),
        clock_mode=clock_mode,
        bind_address=env.get("PODYARD_BIND_ADDRESS") or "127.0.0.1",
        advertise_address=env.get("PODYARD_ADVERTISE") or None,
        port=_number(env, "PODYARD_PORT", HTTP_PORT, 0, 65535),
        grpc_port=_number(env, "PODYARD_GRPC_PORT", GRPC_PORT, 0, 65535) if grpc_port else None,
        storage_port=_number(env, "PODYARD_STORAGE_PORT", STORAGE_PORT, 0, 65535)
        if storage_port
        else None,
        agent_id=env.get("PODYARD_AGENT") or AGENT_ID,
        replicas_max=_number(env, "PODYARD_REPLICAS_MAX", REPLICAS_MAX, 0, 10_000),
        hosts_max=_number(env, "PODYARD_HOSTS_MAX", HOSTS_MAX, 0, 10_000),
        datasets=Path(text).expanduser().absolute()
        if (text := env.get("PODYARD_DATASETS"))
        else None,
        programs=Path(text).expanduser().absolute()
        if (text := env.get("PODYARD_PROGRAMS"))
        else None,
        leases=Leases(
            agent_seconds=_lease(env, "PODYARD_AGENT_LEASE_SECONDS", usual.agent_seconds),
            replica_seconds=_lease(env, "PODYARD_REPLICA_LEASE_SECONDS", usual.replica_seconds),
        ),
        keep=Keep(
            operations_days=_number(
                env, "PODYARD_KEEP_OPERATIONS_DAYS", Keep().operations_days, 0, KEEP_DAYS_MAX
            ),
            logs_days=_number(env, "PODYARD_KEEP_LOGS_DAYS", Keep().logs_days, 0, KEEP_DAYS_MAX),
        ),
        heartbeat_seconds=_seconds(
            env,
            "PODYARD_HEARTBEAT_SECONDS",
            HEARTBEAT_SECONDS,
            HEARTBEAT_SECONDS_LEAST,
            HEARTBEAT_SECONDS_MOST,
        ),
        rate_card_path=rate_card_path(env),
        machine_card_path=machine_card_path(env),
        webhook_addresses=webhook_addresses(env),
        boxes=one_of(env, "PODYARD_BOXES", BOXES),
        box_network=one_of(env, "PODYARD_BOX_NETWORK", BOX_NETWORKS),
        runtimes=one_of(env, "PODYARD_RUNTIMES", RUNTIMES),
        audit_days=_number(env, "PODYARD_AUDIT_DAYS", AUDIT_DAYS, 1, 3650),
        public_address=env.get("PODYARD_PUBLIC_ADDRESS") or None,
        public_port=_number(env, "PODYARD_PUBLIC_PORT", PUBLIC_PORT, 0, 65535),
        public_url=env.get("PODYARD_PUBLIC_URL") or None,
        tls=one_of(env, "PODYARD_TLS", SWITCH) == "1",
        tls_cert=_path(env, "PODYARD_TLS_CERT"),
        tls_key=_path(env, "PODYARD_TLS_KEY"),
        behind_proxy=one_of(env, _PROXY, SWITCH) == "1",
    )


def fleet_name(text: str | None) -> str:
    """A fleet that comes with Podyard by its name, a file by its absolute path; without a text the
    default fleet."""
    if not text or text in FLEET_NAMES:
        return text or DEFAULT_FLEET
    return str(Path(text).expanduser().absolute())


def roles_of(text: str | None) -> tuple[str, ...]:
    """`api,loop` as roles; all of them without a text. Raises INVALID_ARGUMENT for a word that
    names none."""
    wanted = [word.strip() for word in text.split(",")] if text else list(ROLES)
    for word in wanted:
        if word not in ROLES:
            raise invalid(f"unknown role {word!r}: use {', '.join(ROLES)}, separated by commas")
    return tuple(role for role in ROLES if role in wanted)


def rate_card_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """The rate card of one's own that the environment names; None: the one that comes with
    Podyard."""
    return _path(environ, "PODYARD_RATE_CARD")


def machine_card_path(environ: Mapping[str, str] | None = None) -> Path | None:
    """The prices of one's own machines; None: there are none."""
    return _path(environ, "PODYARD_MACHINE_CARD")


def _path(environ: Mapping[str, str] | None, name: str) -> Path | None:
    text = (os.environ if environ is None else environ).get(name)
    return Path(text).expanduser().absolute() if text else None


def webhook_addresses(environ: Mapping[str, str] | None = None) -> str:
    """Return whether webhooks may go to `any` address, or to `public` ones only. Raises
    INVALID_ARGUMENT for anything else."""
    return one_of(
        os.environ if environ is None else environ, "PODYARD_WEBHOOK_ADDRESSES", WEBHOOK_ADDRESSES
    )


def one_of(env: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """The variable's word, or the first allowed one. Raises INVALID_ARGUMENT for any other."""
    text = env.get(name) or allowed[0]
    if text not in allowed:
        raise invalid(f"{name} is {text!r}: it must be one of {', '.join(allowed)}")
    return text


def _default_data() -> str:
    from platformdirs import user_data_dir

    return user_data_dir("podyard", appauthor=False)


def _number(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdigit() or not least <= int(text) <= most:
        raise invalid(f"{name} is {text!r}: it must be a number from {least} to {most}")
    return int(text)


def _lease(env: Mapping[str, str], name: str, default: float) -> float:
    return _seconds(env, name, default, LEASE_SECONDS_LEAST, LEASE_SECONDS_MOST)


def _seconds(env: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = env.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    # NaN compares false with everything, so it is refused here.
    if not least <= seconds <= most:
        raise invalid(
            f"{name} is {text!r}: it must be a number of seconds from {least:g} to {most:g}"
        )
    return seconds
