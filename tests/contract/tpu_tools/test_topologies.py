"""Compilation for a topology that the process does not have, without libtpu."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tpu_program import code, report, run

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

PROGRAM = str(Path(__file__).parents[2] / "programs" / "topology_step.py")
WEIGHT, BATCH = 8192 * 32768, 8192 * 8192  # elements
# three products of the batch with each weight (forward, and twice backward; the first needs no
# gradient of the batch)
FLOPS = 5 * 2 * 8192 * WEIGHT


@pytest.mark.parametrize(
    ("options", "name", "words", "devices"),
    [
        ("--tpu v5litepod-16 --workers 1", "v5e:4x4", "16 TPU v5 lite tpu", 16),
        ("--tpu v6e-8 --dry-run", "v5:4x4x4", "64 TPU v5 tpu", 64),
        ("--tpu v6e-1", "v6e:16x16", "256 TPU v6 lite tpu", 256),
    ],
)
def test_a_step_for_a_topology_has_memory_and_cost(
    tmp_path: Path, options: str, name: str, words: str, devices: int
) -> None:
    done, document = report(options, tmp_path, PROGRAM, name, "1")
    assert done.returncode == 0, done.stderr
    first, memory, cost = done.stdout.splitlines()
    assert first.startswith(words)
    argument, output, alias = map(int, memory.split())
    # weights on all devices, the batch by the first axis of the mesh alone
    weights = 2 * 2 * WEIGHT // devices
    assert argument == weights + 2 * BATCH // (devices // 4)
    assert (alias, output - weights) == (weights, pytest.approx(0, abs=4096))
    has_temporaries, flops, seconds = cost.split()
    assert has_temporaries == "True"
    assert float(flops) == pytest.approx(FLOPS / devices, rel=0.01)
    assert float(seconds) > 0
    (module,) = document["modules"]
    assert module["compiledFor"] and module["deviceSecondsPerRun"] == float(seconds)
    assert f"jit_train_step for {module['compiledFor']}: " in done.stderr
    assert "no training step" not in done.stderr


def test_several_slices_have_an_estimate() -> None:
    script = """
        import jax, jax.numpy as jnp
        from jax.experimental import topologies
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        devices = topologies.get_topology_desc("v5e:2x2", "tpu", num_slices=2).devices
        print([one.slice_index for one in devices])
        rows = NamedSharding(Mesh(devices, ("data",)), P("data"))
        x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=rows)
        compiled = jax.jit(lambda x: x.sum()).lower(x).compile()
        print(compiled.memory_analysis().argument_size_in_bytes)
    """
    done = run("--tpu v5litepod-4", *code(script))
    own = 8 * 128 * 4  # 8 rows of a whole register each
    assert done.stdout.splitlines() == [str([0] * 4 + [1] * 4), str(own)], done.stderr
    assert "jit__lambda for v5litepod-4: " in done.stderr


def test_a_step_that_does_not_fit_on_its_topology_is_an_error_with_strict() -> None:
    script = """
        import jax, jax.numpy as jnp
        from jax.experimental import topologies
        from jax.sharding import SingleDeviceSharding
        topology = topologies.get_topology_desc("v5e:2x2", "tpu")
        on = SingleDeviceSharding(topology.devices[0])
        wide = jax.ShapeDtypeStruct((3 * 2**30,), jnp.bfloat16, sharding=on)
        jax.jit(lambda x, y, z: x + y + z).lower(wide, wide, wide).compile()
    """
    done = run("--tpu v6e-8 --strict", *code(script))
    assert done.returncode == 1 and "RESOURCE_EXHAUSTED" in done.stderr
    assert "15.7" in done.stderr  # of v5e; v6e has room for it


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("'v9:2x2'", "unknown topology 'v9:2x2': use a generation and a shape"),
        ("'v5e:3x5'", "unknown topology 'v5e:3x5'"),
        ("'v5e:4x4', num_slices=0", "num_slices must be from 1"),
        ("'v5e:4x4', twisted=True", "unknown option 'twisted' of a topology"),
        ("'v5e:4x4', chips_per_host_bounds=(3, 2, 1)", "do not divide 4x4x1: use 2,2,1"),
    ],
)
def test_topologies_that_do_not_exist_are_rejected(call: str, words: str) -> None:
    script = f"""
        from jax.experimental.topologies import get_topology_desc
        get_topology_desc(platform="tpu", topology_name={call})
    """
    done = run("--tpu v5litepod-4", *code(script))
    assert done.returncode == 1 and words in done.stderr


def test_a_step_for_a_topology_can_be_neither_run_nor_saved() -> None:
    script = """
        import jax, jax.numpy as jnp
        from jax.experimental import serialize_executable, topologies
        from jax.sharding import SingleDeviceSharding
        device = topologies.get_topology_desc("v6e-8", "tpu").devices[3]
        x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=SingleDeviceSharding(device))
        compiled = jax.jit(jnp.sin).lower(x).compile()
        try:
            serialize_executable.serialize(compiled)
        except NotImplementedError as error:
            print(error)
        compiled(jax.device_put(jnp.ones(8), device))
    """
    done = run("--tpu v5litepod-4", *code(script))
    assert done.returncode == 1
    assert done.stdout.startswith("jit_sin cannot be serialized: ")
    assert "jit_sin is compiled for the topology of a v6e-8, whose devices are not here" in (
        done.stderr
    )
