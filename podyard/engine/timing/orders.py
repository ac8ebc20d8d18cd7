"""The order in which the compiler runs kernels: of those that it weighs against each other the one
with the lowest
peak, and what it changes in that where collectives run next to kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from podyard.engine.timing.graph import SMALL_SIZE
from podyard.engine.timing.latency_hiding import hiding_latency
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import (
    MemorySchedule,
    Step,
    depth_first,
    ending_late,
    ending_with_numbers,
    freeing_first,
    late_constants,
    scattering_last,
    together,
)


def best_order(  # noqa: PLR0913
    steps: Sequence[Step],
    sizes: Mapping[int, int],
    memory: Mapping[int, int],
    results: Collection[int],
    last_loop: int,
    limit_bytes: float,
    pricer: Pricer,
    *,
    is_whole: bool,
    is_live: bool,
) -> list[Step]:
    """`sizes`: bytes of temporaries, `memory`: of arguments and results, too; `last_loop`: the
    place of the last loop, -1 without one; `is_whole`: of the program, not a body; `is_live`:
    results count from when they are made."""
    costs, devices = pricer.costs, pricer.program.mesh.devices
    is_hiding = any(step.run.latency for step in steps)
    # On chips of one core from v5e on, what no loop waits for runs after the last one, if nothing
    # is hidden.
    is_late = is_whole and last_loop >= 0 and costs.prefetch_bytes > 0 and devices > 1
    is_late &= costs.vector_cores == 1 and not is_hiding
    steps = late_constants(ending_late(steps, last_loop) if is_late else steps)
    orders = [steps] if is_late else [steps, freeing_first(steps, sizes)]
    if is_hiding:
        orders = [depth_first(steps, sizes, ends_by_weight=True), *orders]
    elif not is_late and (not costs.prefetch_bytes or devices == 1):
        orders.append(depth_first(steps, sizes))
    arrays = {value for value in results if pricer.program.types[value].size >= SMALL_SIZE}
    if is_whole and arrays and not is_late and is_live:
        orders += [ending_with_numbers(order, arrays) for order in orders]
    if is_whole and costs.prefetch_bytes and any(step.scatters for step in steps) and not is_hiding:
        orders = [scattering_last(order) for order in orders]
    orders = [together(order) for order in orders]
    order = min(orders, key=lambda one: MemorySchedule(one, sizes).peak)
    return hiding_latency(order, memory, results, limit_bytes)
