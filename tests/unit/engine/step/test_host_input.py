"""The time of a step that people read: of programs with all arguments on the devices, and of those
a host feeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from podyard import engine
from podyard.base.errors import PodyardError
from podyard.cli.kit.commands import root
from podyard.engine.recipes.programs import program_of
from podyard.engine.step.host_input import HOST_FEED_BYTES_PER_SECOND, HOST_INPUT

_MESH = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))


def _of(
    shape: tuple[int, ...], *spec: str | None, dtype: Any = jnp.bfloat16
) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(_MESH, P(*spec)))


def _mlp(up: Any, down: Any, x: Any) -> Any:
    return jax.nn.silu(x @ up) @ down


# Of a decoder, split over eight chips: what the compiler's cycles say is about 0.13 ms.
_WEIGHTS = (_of((8192, 14336), None, "x"), _of((14336, 8192), "x", None))
_DECODER = (*_WEIGHTS, _of((32, 8192), None, None))


def _text(fn: Any, *arguments: Any, locations: bool = False) -> str:
    lowered = jax.jit(fn).trace(*arguments).lower(lowering_platforms=("tpu",))
    return str(lowered.as_text(debug_info=locations))


def _estimate_command(text: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    path = tmp_path / "step.mlir"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(
        root, ["estimate", str(path), "--accelerator-type", "v5litepod-8", "-o", "json", *options],
        standalone_mode=False,
    )  # fmt: skip
    if result.exception is not None:
        raise result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_weights_of_a_sharded_program_are_no_host_input(tmp_path: Path) -> None:
    """The weights take 59 ms over PCIe, the step takes a seventh of a millisecond."""
    as_file = _estimate_command(_text(_mlp, *_DECODER), tmp_path)["modelledSeconds"]
    as_function = engine.analyze(_mlp, *_DECODER, accelerator_type="v5litepod-8").modelled_seconds
    assert 60e-6 < as_function < 200e-6
    assert as_file == pytest.approx(as_function, rel=0.01)


def test_a_named_argument_is_sent_at_each_step(tmp_path: Path) -> None:
    text = _text(_mlp, *_DECODER, locations=True)
    sent = 14336 * 8192 * 2 / HOST_FEED_BYTES_PER_SECOND
    for name in ("0", "arg0", "up"):
        found = _estimate_command(text, tmp_path, "--infeed", name)
        assert found["modelledSeconds"] == pytest.approx(sent, rel=0.01)
        as_function = engine.analyze(
            _mlp, *_DECODER, accelerator_type="v5litepod-8", infeed=[name] * (name != "arg0")
        )
        if name != "arg0":
            assert as_function.modelled_seconds == pytest.approx(sent, rel=0.01)


def test_a_tree_is_all_of_its_arrays() -> None:
    def step(w: Any, batch: Any) -> Any:
        return (batch["x"] @ w) * batch["scale"]

    batch = {"x": _of((65536, 8), "x", None), "scale": _of((65536, 128), "x", None)}
    arguments = (_of((8, 128), None, None), batch)

    def feed(*names: str | int) -> float:
        return engine.analyze(
            step, *arguments, accelerator_type="v5litepod-8", infeed=names
        ).feed_seconds

    scale, x = feed("batch['scale']"), feed("batch['x']")
    assert scale == 65536 * 128 * 2 / HOST_FEED_BYTES_PER_SECOND
    assert feed("batch") == feed(1) == scale + x > scale > x > 0 == feed()


def test_an_argument_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        PodyardError,
        match="infeed 'weights' names no argument of the program, which has 0=up, 1=down",
    ):
        engine.analyze(_mlp, *_DECODER, accelerator_type="v5litepod-8", infeed=["weights"])
    with pytest.raises(PodyardError, match="infeed '3' names no argument"):
        engine.analyze_stablehlo(_text(_mlp, *_DECODER), "v5litepod-8", infeed=[3])


def test_the_batch_of_a_recipe_comes_from_the_host() -> None:
    recipe = program_of("mlp", {})
    shapes = recipe.abstract_arguments(65536)
    found = engine.analyze(
        recipe.step, *shapes, accelerator_type="v3-8", global_batch=65536, infeed=HOST_INPUT
    )
    nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes[1]))
    assert found.feed_seconds == nbytes / HOST_FEED_BYTES_PER_SECOND
    result = CliRunner().invoke(root, ["estimate", "mlp", "--global-batch", "65536", "-o", "json"])
    assert (
        json.loads(result.stdout)["modelledSeconds"] == found.modelled_seconds >= found.feed_seconds
    )
