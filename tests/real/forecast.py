"""Forecasts of the time that files take, and the choice of those that run together next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.real.files import RealFile
from tests.real.record import Entry

WORKERS = 2
# Seconds of one worker for a test, by its folder, where a file has no record: of the whole run of
# 2026-11-29.
SECONDS_OF_A_TEST = {"distributed": 8.4, "browser": 2.0, "clients": 14.5, "contract": 4.0}
SECONDS_OF_ANOTHER = 0.5  # on PostgreSQL
START_SECONDS = 8.0  # pytest, its workers and what they collect
INSTALL_SECONDS = (
    60.0  # of one environment of a client: 6 minutes for ten of them, and a network may be slower
)
# Of one run of pytest: short enough to look at the time left, long enough to start seldom.
BATCH_SECONDS = 240.0
LEARN_SECONDS = 120.0  # the measured slowness weighs as much as so long a run


def seconds_of(file: RealFile, record: Mapping[str, Entry]) -> float:
    """Return the forecast for one worker of a machine as fast as the reference."""
    entry = record.get(file.name)
    if entry is not None:
        return entry.seconds
    return file.tests * SECONDS_OF_A_TEST.get(file.name.split("/")[1], SECONDS_OF_ANOTHER)


def pace(slowness: float, forecast: float, actual: float) -> float:
    """Return how many times longer than forecast things take: the measured slowness, corrected by
    what has run so far.

    `forecast` and `actual`: seconds of all that has run."""
    return (LEARN_SECONDS * slowness + actual) / (LEARN_SECONDS + forecast)


def batch_seconds(
    files: Sequence[RealFile], record: Mapping[str, Entry], missing: Sequence[str]
) -> float:
    """Return how long a run of pytest with these files takes, environments that are `missing`
    included.

    Files of a group take turns; the other worker runs what has no group, or another one."""
    seconds = {file.name: seconds_of(file, record) for file in files}
    lanes: dict[str, float] = {}
    for file in files:
        if file.group:
            lanes[file.group] = lanes.get(file.group, 0.0) + seconds[file.name]
    installed = {name for file in files for name in file.environments if name in missing}
    busy = max(sum(seconds.values()) / WORKERS, *lanes.values(), 0.0)
    return START_SECONDS + INSTALL_SECONDS * len(installed) + busy


def next_batch(
    waiting: Sequence[RealFile], record: Mapping[str, Entry], missing: Sequence[str], left: float
) -> list[RealFile]:
    """Return the files that run next, in their order; empty where none is forecast to end in time.

    `left`: seconds of the reference machine. A file that takes longer than a batch runs alone.
    Files of clients, which need environments, are in batches of their own."""
    batch: list[RealFile] = []
    for file in waiting:
        limit = min(left, BATCH_SECONDS) if batch else left
        together = not batch or file.is_client == batch[0].is_client
        if together and batch_seconds([*batch, file], record, missing) <= limit:
            batch.append(file)
    return batch
