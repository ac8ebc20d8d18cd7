"""One replica process of a job: what `workers/replica/replica.py` runs. Importing this imports no
JAX; `run_replica` does."""

from __future__ import annotations

from podyard.base.clock import RealClock
from podyard.engine.contract import (
    MODES,
    Ended,
    MetricsSink,
    Peer,
    Rendezvous,
    ReplicaSpec,
    check_spec,
)
from podyard.engine.training.store import CheckpointStore

__all__ = [
    "MODES",
    "Ended",
    "MetricsSink",
    "Peer",
    "Rendezvous",
    "ReplicaSpec",
    "check_spec",
    "run_replica",
]


def run_replica(  # noqa: PLR0913
    spec: ReplicaSpec,
    rendezvous: Rendezvous,
    metrics: MetricsSink,
    store: CheckpointStore,
    resume: int | None,
    bind_address: str,
    real_clock: RealClock,
    source: CheckpointStore | None = None,
) -> Ended:
    """Runs the job's mode to its end, until `metrics.stopping()`, or until the gang has yielded.

    `resume`: the step whose checkpoint is gone on from; when it is damaged, the newest whole one
    before it is used, and that is logged. `source`: where that is, when not in `store`. Raises
    PodyardError: INVALID_ARGUMENT for a spec that does not hold together, UNAVAILABLE when a peer
    is lost, ABORTED when this epoch has been replaced, DATA_LOSS when there is nothing whole to
    resume from.
    """
    check_spec(spec)
    from podyard.engine.training import xla

    xla.prepare_environment()
    # Only now, in the environment it needs.
    from podyard.engine.training.session import Session

    return Session(spec, rendezvous, metrics, store, bind_address, real_clock).run(
        resume, source or store
    )
