"""Nodes, slices, hosts, operations, agents."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Json, PlatformTimeColumn, RealTimeColumn
from podyard.domain.host_record import HOST

# Conditions of indexes. PostgreSQL's indexes have them, too (see `migrations`); naming that dialect
# here would load it in each process: 2 MB. A row that an index leaves out costs no write in it.
_LIVES = text("live_name IS NOT NULL")
_OF_QUEUE = text("queued_resource_key IS NOT NULL")
_OF_JOB = text("job_key IS NOT NULL")
_HAS_ADDRESS = text("first_address > 0")
nodes = Table(
    "nodes",
    metadata,
    Column("node_key", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),  # the int64 `id` on the wire
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("node_id", String(64), nullable=False),
    # The name while the node is, NULL once it is gone: unique, so that two creations of one name
    # cannot both stand.
    Column("live_name", String(256), unique=True),
    Column("state", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("accelerator_type", String(64), nullable=False),
    Column("topology", String(32), nullable=False),
    Column("usage_class", String(16), nullable=False),
    Column("runtime_version", String(128), nullable=False),
    Column("spec", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("ready_since", PlatformTimeColumn),
    Column("state_reason", Text, nullable=False),
    Column("wait_reason", Text, nullable=False),
    Column("pending_operation", String(64)),
    Column("host_count", Integer, nullable=False),
    # number of its first host's address; 0: none yet
    Column("first_address", BigInteger, nullable=False),
    Column("job_key", String(64)),  # the job that this node was made for, and goes with
    Column("queued_resource_key", String(64)),
    Column("queued_resource", String(256), nullable=False, server_default=""),  # its full name
    Column("slice_index", Integer, nullable=False, server_default="0"),
    Column("slice_count", Integer, nullable=False, server_default="1"),
    Column("reservation_key", String(64)),  # the reservation that it was last placed under
    Column("health", String(32), nullable=False, server_default="HEALTHY"),
    Column("health_description", Text, nullable=False, server_default=""),
    Column("symptoms", Json),
    Column("upcoming_maintenance", Json),
    Column("maintenance_workers", Json),  # indices of the hosts that a maintenance event is on
    Column("termination", PlatformTimeColumn),  # when it ends by itself
    # it is under notice: its slice is taken back then, for another request
    Column("reclaim_at", PlatformTimeColumn),
    # empty: nobody knows any more
    Column("created_by", String(256), nullable=False, server_default=""),
    # it has left a broken slice there, and is placed there again if it can be
    Column("last_pod", String(64)),
    Column("road", String(16), nullable=False, server_default="tpu"),
    Index("ix_nodes_queued_resource", "queued_resource_key", sqlite_where=_OF_QUEUE),
    Index("ix_nodes_state", "state"),
    Index("ix_nodes_first_address", "first_address", sqlite_where=_HAS_ADDRESS),
    Index("ix_nodes_job", "job_key", sqlite_where=_OF_JOB),
    # Of the lists in the console: the order by name, and what there is of each zone, state and
    # type.
    Index("ix_nodes_name", "project", "node_id", "node_key", sqlite_where=_LIVES),
    Index(
        "ix_nodes_kinds",
        "project",
        "zone",
        "state",
        "accelerator_type",
        "topology",
        "usage_class",
        "road",
        sqlite_where=_LIVES,
    ),
)

# How many live nodes there are of each kind, those of queued resources aside: quotas read it, so
# that a creation costs the same with ten nodes and with ten thousand. `transition` keeps it, in the
# units that make nodes and end them.
node_counts = Table(
    "node_counts",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("usage_class", String(16), primary_key=True),
    Column("zone", String(64), primary_key=True),
    Column("accelerator_type", String(64), primary_key=True),
    Column("topology", String(32), primary_key=True),
    Column("nodes", BigInteger, nullable=False),
)

slices = Table(
    "slices",
    metadata,
    Column("slice_id", String(64), primary_key=True),
    # One slice a node while it is placed; released slices are deleted, the events remember them.
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False, unique=True),
    Column("zone", String(64), nullable=False),
    Column("pod_id", String(64), nullable=False),
    Column("origin", Json, nullable=False),
    Column("shape", Json, nullable=False),
    Column("chips", Text, nullable=False),  # bit set of the pod's chips, hexadecimal
    Column("created", PlatformTimeColumn, nullable=False),
    Index("ix_slices_zone", "zone"),
)

# Slices that were given back, for the maps of the past day; pruned (podyard.loop.retention).
past_slices = Table(
    "past_slices",
    metadata,
    Column("slice_id", String(64), primary_key=True),
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False),
    Column("pod_id", String(64), nullable=False),
    Column("chips", Text, nullable=False),
    Column("placed", PlatformTimeColumn, nullable=False),
    Column("released", PlatformTimeColumn, nullable=False),
    Index("ix_past_slices_pod", "pod_id", "released"),
    Index("ix_past_slices_released", "released"),
)

hosts = Table(
    "hosts",
    metadata,
    Column("host_id", String(64), primary_key=True),
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False),
    Column("host_index", Integer, nullable=False),
    Column("internal_ip", String(64), nullable=False),
    Column("external_ip", String(64), nullable=False),
    Column("state", String(32), nullable=False, default=HOST.initial),
    Column("version", BigInteger, nullable=False, default=1),
    Column("agent_id", String(64)),
    Column("bind_address", String(64)),
    Column("port_map", Json, nullable=False),  # metadata, ssh, tensorflow -> port
    # with its port; only this machine reaches it
    Column("metadata_address", String(64), nullable=False, default=""),
    # how often it was materialised: the fence of reports
    Column("generation", Integer, nullable=False, default=0),
    # it was requested: it comes back as long as READY
    Column("asked", Boolean, nullable=False, default=False),
    # the node's, when it was materialised: a node READY again reboots
    Column("ready_since", PlatformTimeColumn),
    Column("tried", RealTimeColumn),
    Column("lease_until", RealTimeColumn),
    Column("problem", Text, nullable=False, default=""),
    Column("ssh_host_key", Text, nullable=False, default=""),
    Column("guest_attributes", Json, nullable=False, default=dict),  # namespace -> key -> value
    Column("scripts", Json, nullable=False, default=dict),  # script -> {state, exitCode}
    # what its programs compiled and ran: RanModule
    Column("programs", Json, nullable=False, default=list),
    # what keeps it apart from its machine, in a sentence
    Column("isolation", Text, nullable=False, default=""),
    # what its runtime version has here, in a sentence
    Column("software", Text, nullable=False, default=""),
    UniqueConstraint("node_key", "host_index"),
    Index("ix_hosts_agent", "agent_id", "state"),
)

# Instances of Compute Engine: each is one host of a row of `nodes`, and goes with it.
instances = Table(
    "instances",
    metadata,
    Column("instance_key", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),  # the uint64 `id` on the wire
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("name", String(63), nullable=False),
    Column("node_key", String(64), ForeignKey("nodes.node_key"), nullable=False),
    Column("host_index", Integer, nullable=False),
    Column("group_key", String(64)),  # of the managed group that made it
    Column("created", PlatformTimeColumn, nullable=False),
    # labels, metadata and tags, where they are other ones than those of its row of nodes
    Column("own", Json, nullable=False, server_default="{}"),
    UniqueConstraint("node_key", "host_index"),
    Index("ix_instances_name", "project", "zone", "name"),
    Index("ix_instances_group", "group_key", sqlite_where=text("group_key IS NOT NULL")),
)

# Managed instance groups. Their instances name them.
instance_groups = Table(
    "instance_groups",
    metadata,
    Column("group_key", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("project", String(64), nullable=False),
    Column("place", String(64), nullable=False),  # a zone or a region
    Column("zone", String(64), nullable=False),  # of its instances
    Column("name", String(63), nullable=False),
    Column("target_size", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    UniqueConstraint("project", "place", "name"),
)

operations = Table(
    "operations",
    metadata,
    Column("operation_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("verb", String(32), nullable=False),
    Column("target_kind", String(32), nullable=False),
    Column("target_key", String(64), nullable=False),
    Column("target_name", String(512), nullable=False),
    Column("state", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("ended", PlatformTimeColumn),
    Column("error_code", Integer),
    Column("error_message", Text),
    Column("error_details", Json, nullable=False),
    Column("response", Json),
    Column("cancel_requested", Boolean, nullable=False),
    Column("api_version", String(16)),  # of Google's API that began it
    Column("lost", Boolean),  # by a fault: nobody is told of it
    Column("status_detail", Text),
    Column("created_by", String(256)),
    Column("target_number", BigInteger),
    Index("ix_operations_place", "project", "zone", "created"),
    Index("ix_operations_target", "target_key"),
)

agents = Table(
    "agents",
    metadata,
    Column("agent_id", String(64), primary_key=True),
    Column("bind_address", String(64), nullable=False),
    Column("replicas_max", Integer, nullable=False),
    Column("hosts_max", Integer, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("registered", RealTimeColumn, nullable=False),
    Column("seen", RealTimeColumn, nullable=False),
    # An API of an earlier release writes none of these.
    Column("state", String(16), nullable=False, server_default="READY"),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("release", String(64), nullable=False, server_default=""),
    Column("host_name", String(256), nullable=False, server_default=""),
    Column("place", String(64), nullable=False, server_default=""),
    Column("cores", Integer, nullable=False, server_default="0"),
    Column("memory_bytes", BigInteger, nullable=False, server_default="0"),
    Column("kernels", String(256), nullable=False, server_default=""),
    Column("runtimes", Json, nullable=False, server_default="[]"),
    Column("labels", Json, nullable=False, server_default="{}"),
    Column("clock_offset_millis", BigInteger, nullable=False, server_default="0"),
    Column("joined", RealTimeColumn),
    Column("joined_by", String(256), nullable=False, server_default=""),
    Column("problem", Text, nullable=False, server_default=""),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),  # SHA-256: the token itself is never stored
    Column("created", RealTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    Column("expires", RealTimeColumn, nullable=False),
    Column("used", RealTimeColumn),
    Column("used_by", String(64)),  # the agent that has joined with it
)

disks = Table(
    "disks",
    metadata,
    Column("disk_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("name", String(63), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("type", String(32), nullable=False),
    Column("size_gb", BigInteger, nullable=False),
    Column("description", Text, nullable=False),
    Column("labels", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    Column("usage_version", BigInteger, nullable=False),  # its usage events
    Column("agent_id", String(64)),  # the agent that has its contents
    Column("source", String(512), nullable=False, server_default=""),  # the image of it
    UniqueConstraint("project", "zone", "name"),
)

# Compute Engine's resources that have no life: they are as their users have described them.
compute_resources = Table(
    "compute_resources",
    metadata,
    Column("resource_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("place", String(64), nullable=False),  # global, a region, or a zone
    Column("name", String(63), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("spec", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    UniqueConstraint("project", "kind", "place", "name"),
)
