"""Placement in a pod of 4096 chips (v4, 16x16x16), on one core: decisions a second, and utilisation
when the first request is refused.

    python -m benchmarks.placement [--decisions 40000] [--rounds 3] [--seeds 100]

- Stream: legal shapes of v4, equally likely; after a refusal one slice departs, so the pod stays
  near the point of refusal. Once all shapes that an empty pod holds, once those of at most 512
  chips (more slices, and more of them below a cube). A decision is a search with the taking of the
  chips, or the refusal and the giving back of others.
  Bounds: torus 20,000 decisions/s and 99 % of the decisions within 0.2 ms, optical switches
  100,000/s. `find_box` is the front that starts from bit sets each time; `PodSpace` is kept up to
  date.
- Utilisation: legal shapes of at most 512 chips, equally likely, nothing departs; mean of the
  seeds. In a torus the shapes that do not even fit an empty pod are left out. Bound: optical
  switches 90 %.

Rates are the best round's; times are of the processor (others may use the machine), the 99th
percentile too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from podyard.domain.fleet import Pod
from podyard.hardware.accelerator_types import AcceleratorType, from_config, legal_shapes
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.topology import shape_text
from podyard.hardware.torus import full_mask
from podyard.scheduler.placement import ChipBox, PodSpace, find_box

V4 = GENERATIONS["v4"]
SMALL_CHIPS_MAX = 512
PODS = {
    "torus": Pod("torus", "us-central2-b", V4, V4.pod_shape),
    "optical switches": Pod("switched", "us-central2-b", V4, V4.pod_shape, switched=True),
}
Find = Callable[[PodSpace, AcceleratorType], ChipBox | None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--decisions", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    kinds = [from_config("V4", shape_text(shape)) for shape in legal_shapes(V4)]
    print(f"{'':<28} shapes  chips  decisions/s   p50 us   p99 us  placed   used")
    for name, pod in PODS.items():
        for chips_max in (pod.chip_count, SMALL_CHIPS_MAX):
            fitting = [
                k for k in kinds if k.chip_count <= chips_max and pod.can_hold(k.topology.shape)
            ]
            for way, run in (("PodSpace", _kept), ("find_box", _from_masks)):
                found = [
                    run(pod, fitting, options.decisions, seed=1) for _ in range(options.rounds)
                ]
                rate = max(item[0] for item in found)
                p50, p99 = (min(_percentile(item[1], part) for item in found) for part in (50, 99))
                placed, used = found[0][2] / options.decisions, found[0][3]
                print(
                    f"{name + ', ' + way:<28} {len(fitting):6} {chips_max:6} {rate:12.0f} "
                    f"{p50:8.1f} {p99:8.1f}"
                    f" {placed:7.0%} {used:6.1%}"
                )
    small = [kind for kind in kinds if kind.chip_count <= SMALL_CHIPS_MAX]
    print(f"\nutilisation at the first refusal, {options.seeds} seeds: mean, and the lowest")
    for name, pod in PODS.items():
        fitting = [kind for kind in small if pod.can_hold(kind.topology.shape)]
        ways: tuple[tuple[str, Find], ...] = (("best", PodSpace.find), ("first fit", _first_fit))
        for way, find in ways:
            used_at = [_used_at_refusal(pod, fitting, seed, find) for seed in range(options.seeds)]
            print(
                f"{name}, {way}: {len(fitting)} shapes   {statistics.mean(used_at):.1%}   "
                f"{min(used_at):.1%}"
            )


def _kept(
    pod: Pod, kinds: list[AcceleratorType], decisions: int, seed: int
) -> tuple[float, list[int], int, float]:
    """(decisions a second, nanoseconds of each, how many were placed, mean utilisation)."""
    chance = random.Random(seed)
    space = PodSpace(pod, full_mask(pod.shape))
    live: list[ChipBox] = []
    took: list[int] = []
    placed = used = used_sum = 0
    for kind in chance.choices(kinds, k=decisions):
        leaving = chance.random()
        start = time.process_time_ns()
        box = space.find(kind)
        if box is not None:
            space.take(box)
            live.append(box)
        elif live:
            box = live.pop(int(leaving * len(live)))
            space.give(box)
        took.append(time.process_time_ns() - start)
        if live and box is live[-1]:
            placed += 1
            used += kind.chip_count
        elif box is not None:
            used -= box.chips.bit_count()
        used_sum += used
    return decisions / (sum(took) / 1e9), took, placed, used_sum / decisions / pod.chip_count


def _from_masks(
    pod: Pod, kinds: list[AcceleratorType], decisions: int, seed: int
) -> tuple[float, list[int], int, float]:
    """The same with nothing kept but the bit set of the free chips."""
    chance = random.Random(seed)
    free = full_mask(pod.shape)
    live: list[int] = []
    took: list[int] = []
    placed = used_sum = 0
    for kind in chance.choices(kinds, k=decisions):
        leaving = chance.random()
        start = time.process_time_ns()
        box = find_box([pod], [free], kind)
        if box is not None:
            free &= ~box.chips
            live.append(box.chips)
        elif live:
            free |= live.pop(int(leaving * len(live)))
        took.append(time.process_time_ns() - start)
        placed += box is not None
        used_sum += pod.chip_count - free.bit_count()
    return decisions / (sum(took) / 1e9), took, placed, used_sum / decisions / pod.chip_count


def _used_at_refusal(pod: Pod, kinds: list[AcceleratorType], seed: int, find: Find) -> float:
    chance = random.Random(seed)
    space = PodSpace(pod, full_mask(pod.shape))
    used = 0
    while True:
        kind = chance.choice(kinds)
        box = find(space, kind)
        if box is None:
            return used / pod.chip_count
        space.take(box)
        used += kind.chip_count


def _first_fit(space: PodSpace, kind: AcceleratorType) -> ChipBox | None:
    """Lowest origin; among cubes that switches join there is nothing to choose."""
    return space.find(kind) if space.joins_cubes(kind) else next(space.boxes(kind), None)


def _percentile(took: list[int], part: int) -> float:
    """In microseconds."""
    return sorted(took)[len(took) * part // 100] / 1000


if __name__ == "__main__":
    main()
