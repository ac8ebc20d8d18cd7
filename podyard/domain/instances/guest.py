"""The attributes on the metadata server of an instance, which differ from those of a TPU VM of the
Cloud TPU API.

Seen on real instances in August 2026: `worker-network-endpoints` has bare names (on the TPU API it
has triples, and programs that look for colons take a group for one host), and `tpu-env` other keys.
"""

from __future__ import annotations

from podyard.domain.host import TOPOLOGY_ALT, NodeFacts, metrics_ports, wrap_text


def attributes(facts: NodeFacts, index: int) -> dict[str, str]:
    """Of one host; a machine without chips has none of these."""
    if not facts.kind.chip_count:
        return {}
    return {
        "accelerator-type": facts.accelerator_type,
        "agent-worker-number": str(index),
        "tpu-env": "".join(
            f"{name}: '{value}'\n" for name, value in _tpu_env(facts, index).items()
        ),
        "worker-network-endpoints": ",".join(facts.instance_names),
    }


def _tpu_env(facts: NodeFacts, index: int) -> dict[str, str]:
    kind = facts.kind
    return {
        "TPU_WORKER_ID": str(index),
        "CONSUMER_PROJECT_ID": facts.project,
        "ZONE": facts.zone,
        "NODE_ID": facts.node_id,
        "TPU_RUNTIME_METRICS_PORTS": metrics_ports(kind),
        "ENABLE_ICI_RESILIENCY": "true",  # also on one chip
        "ENABLE_IMPROVED_REROUTE_ALLREDUCE_STRATEGY": "false",
        "INJECT_SLICE_BUILDER_FAULT": "",
        "TPU_ACCELERATOR_TYPE": facts.accelerator_type,
        "TOPOLOGY": facts.topology,
        "WRAP": wrap_text(kind),
        "ALT": TOPOLOGY_ALT,
        "HOST_BOUNDS": kind.host_bounds,
        "CHIPS_PER_HOST_BOUNDS": kind.chips_per_host_bounds,
    }
