"""All-reduce plans against what the TPU compiler (libtpu 0.0.51) chose, and the sense of their
seconds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard import engine
from podyard.base.errors import Code, PodyardError
from podyard.engine.timing.collectives import SHORT_BYTES, plan_for
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.topology import parse_topology
from tests.unit.engine.compiled import cases

_FILE = Path(__file__).parents[2] / "data" / "all_reduce_strategies.json"
# Sums a whole array in one phase; the compiler prints no strategy for it.
_WITHOUT_STRATEGY = "SinglePhaseRingSumEmitter"
_TYPES = ("v2-8", "v2-32", "v2-512", "v3-8", "v3-2048", "v4-8", "v4-128", "v4-4096", "v5litepod-4",
    "v5litepod-256",
          "v5p-8", "v5p-128", "v6e-8", "v6e-256")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class CompiledSum:
    """One all-reduce of `nbytes` per device over a whole slice; `topology` as libtpu names it
    (`v4:4x4x8_twisted`)."""

    topology: str
    devices: int
    nbytes: int
    emitter: str | None
    strategy: str | None
    colours: int
    phases: int
    ring_sizes: str

    @property
    def slice(self) -> AcceleratorType:
        """The slice of that shape; whether it is twisted is what the row says, not the default."""
        name, _, shape = self.topology.partition(":")
        generation = GENERATIONS[name]
        twist = "" if shape.endswith("_twisted") or generation.dimensions == 2 else "_untwisted"
        topology = parse_topology(generation, shape + twist)
        chips = topology.chip_count
        return dataclasses.replace(
            parse(f"{generation.name_prefix}-8"), name=self.topology, topology=topology,
            chip_count=chips,
            core_count=chips * generation.cores_per_chip,
        )  # fmt: skip


def _rows() -> list[CompiledSum]:
    return [CompiledSum(**row) for row in json.loads(_FILE.read_text(encoding="utf-8"))["rows"]]


def test_plans_equal_every_all_reduce_that_was_compiled() -> None:
    wrong = []
    rows = _rows()
    for row in rows:
        assert row.slice.device_count == row.devices, row
        plan = plan_for(row.slice, row.nbytes)
        told = (plan.family, plan.colours, plan.phases, plan.ring_sizes)
        if row.emitter is None:
            expected: tuple[object, ...] = ("None", 0, 0, "")
        elif row.emitter == _WITHOUT_STRATEGY:
            expected = (row.emitter.removesuffix("Emitter"), 1, 1, f"{{{row.devices}}}")
        else:
            expected = (row.strategy, row.colours, row.phases, row.ring_sizes)
        if told != expected:
            wrong.append((row.topology, row.nbytes, told, expected))
    assert wrong == []
    assert {row.topology.partition(":")[0] for row in rows} == {
        "v2",
        "v3",
        "v4",
        "v5e",
        "v5p",
        "v6e",
    }


def test_plans_equal_the_strategies_of_compiled_programs() -> None:
    """There bytes are what the compiler's combiner made of a program's sums, and known only of
    single collectives."""
    wrong, seen = [], 0
    for one in cases():
        if one.kind != "collective" or one.facts["coll"] != "all-reduce":
            continue
        plan = plan_for(one.slice, one.facts["bytes_per_dev"])
        if not one.facts.get("strategies"):
            assert plan.family in ("None", "SinglePhaseRingSum"), one.case
            continue
        seen += 1
        told = [plan.family, plan.colours, plan.phases, plan.ring_sizes]
        if told not in one.facts["strategies"]:
            wrong.append((one.case, told, one.facts["strategies"]))
    assert wrong == []
    assert seen > 25


def test_the_sums_of_training_steps_have_a_plan_that_the_compiler_chose() -> None:
    """All sums of a step go over the whole slice: where the plan does not depend on the bytes, it
    is each one's."""
    wrong, seen = [], 0
    for one in cases():
        if one.kind != "train_step_dp" or not one.facts.get("strategies"):
            continue
        plans = {
            (plan.family, plan.colours, plan.phases, plan.ring_sizes)
            for plan in (plan_for(one.slice, SHORT_BYTES), plan_for(one.slice, SHORT_BYTES + 1))
        }
        seen += 1
        if not {tuple(strategy) for strategy in one.facts["strategies"]} <= plans:
            wrong.append((one.case, plans, one.facts["strategies"]))
    assert wrong == []
    assert seen > 10


def test_bytes_and_twist_change_the_plan() -> None:
    """Otherwise equality on the rows would say nothing about either."""
    rows = _rows()
    by_bytes: dict[str, set[str | None]] = {}
    for row in rows:
        by_bytes.setdefault(row.topology, set()).add(f"{row.strategy} {row.colours}")
    assert sum(len(found) > 1 for found in by_bytes.values()) > 10
    twisted = [row for row in rows if row.topology.endswith("_twisted")]
    straight = {(row.topology, row.nbytes): row.ring_sizes for row in rows}
    untwisted = [
        straight.get((row.topology.removesuffix("_twisted"), row.nbytes)) for row in twisted
    ]
    assert twisted
    assert any(
        other not in (None, row.ring_sizes) for row, other in zip(twisted, untwisted, strict=True)
    )


# --- seconds


@given(name=st.sampled_from(_TYPES), sizes=st.lists(st.integers(0, 2**32), min_size=2, max_size=6))
@settings(deadline=None, max_examples=100)
def test_more_bytes_never_take_less_time(name: str, sizes: list[int]) -> None:
    seconds = [engine.all_reduce_plan(name, nbytes).seconds for nbytes in sorted(sizes)]
    assert seconds == sorted(seconds)


@given(name=st.sampled_from(_TYPES), nbytes=st.integers(1, 2**32))
@settings(deadline=None, max_examples=100)
def test_no_sum_is_faster_than_all_links_of_a_chip(name: str, nbytes: int) -> None:
    kind = parse(name)
    generation = kind.generation
    sent = 2 * (kind.chip_count - 1) / kind.chip_count * nbytes
    least = sent / (generation.ici_link_bytes_per_second * generation.ici_links_per_chip)
    assert engine.all_reduce_plan(name, nbytes).seconds >= least


@pytest.mark.parametrize("name", ["v5litepod-1", "v6e-1"])
def test_one_chip_takes_no_time(name: str) -> None:
    assert engine.all_reduce_plan(name, 2**30).seconds == 0.0


def test_a_mesh_is_slower_than_a_torus_of_the_same_shape() -> None:
    for name in ("v3-2048", "v4-128", "v5litepod-256", "v5p-128"):
        torus = parse(name)
        shape = dataclasses.replace(torus.topology, wrap=(False,) * len(torus.topology.shape))
        mesh = dataclasses.replace(torus, topology=shape)
        assert all(torus.topology.wrap)
        for nbytes in (4096, 2**20, 2**28):
            assert plan_for(mesh, nbytes).seconds > plan_for(torus, nbytes).seconds


def test_what_is_no_slice_or_no_size_is_refused() -> None:
    for name, nbytes in (("v3-8", -1), ("v3-9", 1), ("tpu", 1)):
        with pytest.raises(PodyardError) as refused:
            engine.all_reduce_plan(name, nbytes)
        assert refused.value.code is Code.INVALID_ARGUMENT
