"""The kinds of events, and what each of them takes: name of the argument -> what it may be."""

from __future__ import annotations

from collections.abc import Mapping

Wanted = type | tuple[type, ...]
_NUMBER = (int, float)
_NODE: Mapping[str, Wanted] = {"project": str, "zone": str, "type": str, "usage": str}

WORKLOAD: Mapping[str, Mapping[str, Wanted]] = {
    "reserve": {"project": str, "zone": str, "generation": str, "size": int},
    "create": {**_NODE, "request_id": str},
    "delete": {},
    "stop": {},
    "start": {},
    "patch": {"labels": dict},
    "queue": {
        **_NODE,
        "count": int,
        "valid_after": _NUMBER,
        "valid_until": _NUMBER,
        "run_seconds": _NUMBER,
    },
    "reset": {},
    "unqueue": {},
    "job": {
        **_NODE,
        "node": str,
        "steps": int,
        "every": int,
        "step_seconds": _NUMBER,
        "elastic": bool,
    },
    "cancel": {},
    # Of Compute Engine: an instance for each host of its slice. `type` may be a machine type
    # without chips.
    "instance": {**_NODE},
    "halt": {},
    "resume": {},
    "end": {},
    "materialise": {},  # a request for the hosts of a node
}

FAULTS: Mapping[str, Mapping[str, Wanted]] = {
    "preempt": {},  # a spot or preemptible node, or all nodes of a queued resource
    "maintain": {"seconds": _NUMBER},  # a maintenance of a node whose window begins after so long
    "announce": {},  # a node's hosts are told of a maintenance that does not come
    "vanish": {},  # a node is deleted, even if it is needed
    # An agent and its replicas cannot reach the platform for so long (platform time); `lapse`: nor
    # while leases end.
    "silence": {"agent": int, "seconds": _NUMBER, "lapse": bool},
    "die": {"agent": int},  # an agent's machine loses all its processes, and starts again
    "exit": {"code": int},  # a replica of a job ends by itself
    "broker": {"lose": _NUMBER, "double": _NUMBER, "delay": _NUMBER, "messages": int},
    "crash": {"units": int},  # the control loop dies after so many more units of work
    "leap": {"seconds": _NUMBER},  # the machine's clock jumps forward
    # a fault rule is added, as `podyard fault add` does; it is not drawn from the seed
    "rule": {"rule": dict},
}

KINDS: Mapping[str, Mapping[str, Wanted]] = {**WORKLOAD, **FAULTS}
