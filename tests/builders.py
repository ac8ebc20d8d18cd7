"""Records for tests, with usual values."""

from __future__ import annotations

import dataclasses
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.node import NodeRecord, NodeSpec, NodeState, UsageClass, kind_of, node_name


def node_record(
    node_id: str = "n", kind: str = "v2-8", topology: str = "2x2", *, project: str = "p", zone: str, **changes: Any
) -> NodeRecord:
    """A node that has just been asked for."""
    spec = NodeSpec(kind, topology, "x", UsageClass.ON_DEMAND)
    record = NodeRecord(
        node_key=node_id,
        number=1,
        project=project,
        zone=zone,
        node_id=node_id,
        live_name=node_name(project, zone, node_id),
        state=NodeState.CREATING,
        version=1,
        accelerator_type=kind,
        topology=topology,
        usage_class=spec.usage_class,
        runtime_version=spec.runtime_version,
        spec=spec,
        created=PlatformTime(0),
        ready_since=None,
        state_reason="",
        wait_reason="",
        pending_operation=None,
        host_count=kind_of(kind, topology).host_count,
        first_address=0,
        job_key=None,
    )
    return dataclasses.replace(record, **changes)
