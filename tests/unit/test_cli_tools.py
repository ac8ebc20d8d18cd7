"""`podyard estimate --function`, `explain tpu-v1` and `hardware show edgetpu`, with nothing
replaced."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.commands import root

MODULE = """
import jax, jax.numpy as jnp

class Model:
    def step(w, x):
        return jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

def shapes():
    return (jax.ShapeDtypeStruct((64, 32), jnp.float32), jax.ShapeDtypeStruct((16, 64), jnp.bfloat16))

given = list(shapes())

def fails():
    raise RuntimeError("no shapes today")

number = 3
"""  # noqa: E501
SHAPES = "f32[64,32], bfloat16[16,64]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_programs.py").write_text(MODULE)
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("my_programs", "my_broken"):
        sys.modules.pop(name, None)


def run(*argv: str) -> str:
    result = CliRunner().invoke(root, list(argv), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def estimate(*argv: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        run("estimate", "--accelerator-type", "v5litepod-1", "-o", "json", *argv)
    )
    return found


def test_a_function_is_estimated_by_its_name_and_shapes() -> None:
    pytest.importorskip("jax")
    found = estimate("--function", "my_programs:Model.step", "--shapes", SHAPES)
    assert found["program"] == "my_programs:Model.step"
    # the axis that pads least has the 128 lanes
    assert found["argumentBytes"] == 32 * 128 * 4 + 16 * 128 * 2
    for shapes in (["my_programs:shapes"], ["my_programs:given"], ["f32[64,32]", "bf16[ 16, 64 ]"]):
        again = estimate(
            "--function", "my_programs:Model.step", *(f"--shapes={text}" for text in shapes)
        )
        assert again == found
    split = estimate(
        "--function", "my_programs:Model.step", "--shapes", SHAPES, "--global-batch", "16"
    )
    assert (split["devices"], split["globalBatch"]) == (1, 16)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["my_programs"], "use MODULE:NAME"),
        (["my_programs:none"], "my_programs has no none"),
        (["my_programs:number"], "it is a int, not a function"),
        (["no_such_module:step"], "cannot import no_such_module: ModuleNotFoundError"),
        (["my_broken:step"], "cannot import my_broken: ZeroDivisionError"),
        (["my_programs:Model.step"], "cannot be traced: TypeError"),
        (["my_programs:Model.step", "--shapes", "f32[3],f32[4,4]"], "cannot be traced: TypeError"),
        (
            ["my_programs:Model.step", "--shapes", "f33[3]"],
            "unknown element type 'f33': use one of pred",
        ),
        (
            ["my_programs:Model.step", "--shapes", "f32[3"],
            "use types and sizes such as f32[128,784]",
        ),
        (["my_programs:Model.step", "--shapes", "f32[3 4]"], "sizes are whole numbers"),
        (
            ["my_programs:Model.step", "--shapes", "my_programs:fails"],
            "failed: RuntimeError: no shapes today",
        ),
        (
            ["my_programs:Model.step", "--shapes", "my_programs:number"],
            "must be a tuple of arguments",
        ),
    ],
)
def test_what_is_no_function_or_shape_is_named(argv: list[str], message: str) -> None:
    pytest.importorskip("jax")
    with pytest.raises(PodyardError) as raised:
        run("estimate", "--function", *argv)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert message in raised.value.message


@pytest.mark.parametrize("argv", [[], ["mlp", "--function", "a:b"], ["mlp", "--shapes", "f32[3]"]])
def test_a_function_goes_without_a_file_and_shapes_with_a_function(argv: list[str]) -> None:
    with pytest.raises(click.UsageError):
        run("estimate", *argv)


def test_tpu_v1_with_four_times_the_bandwidth() -> None:
    found = json.loads(run("explain", "tpu-v1", "-o", "json"))
    assert found["weightedMean"] == pytest.approx(3, rel=0.1)
    rows = {row["application"]: row for row in found["applications"]}
    assert rows["MLP0"]["speedup"] > 3 > rows["CNN0"]["speedup"]
    ranges = {
        (one["what"], one["low"], one["high"])
        for one in found["published"]
        if one["system"] == "TPU v1"
    }
    assert ranges == {("speed", 15, 30), ("performance per watt", 30, 80)}
    assert all(
        one["source"].startswith("abstract of arXiv 1704.04760") for one in found["published"]
    )
    text = run("explain", "tpu-v1")
    assert "30 to 80 times the performance per watt of Nvidia K80" in text
    same = json.loads(run("explain", "tpu-v1", "--bandwidth", "1", "-o", "json"))
    assert same["arithmeticMean"] == same["geometricMean"] == 1
    with pytest.raises(click.UsageError):
        run("explain", "tpu-v1", "--bandwidth", "0")


def test_the_edge_tpu_is_shown_with_its_sources() -> None:
    found = json.loads(run("hardware", "show", "edgetpu", "-o", "json"))
    assert found["peak_int8_ops_per_second"] == 4 * 10**12
    assert set(found["sources"]) >= {"peak_int8_ops_per_second", "watts", "sram_bytes"}
    assert "no node has one" in found["note"]


INT8 = """
module @m {
  func.func public @main(%arg0: tensor<1x8x8x3xi8>, %arg1: tensor<192x10xi8>) -> tensor<1x10xi32> {
    %c = stablehlo.constant dense<1> : tensor<3x3x3x3xi8>
    %0 = stablehlo.convolution(%arg0, %c) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], \
window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : \
(tensor<1x8x8x3xi8>, tensor<3x3x3x3xi8>) -> tensor<1x8x8x3xi8>
    %1 = stablehlo.reshape %0 : (tensor<1x8x8x3xi8>) -> tensor<1x192xi8>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<1x192xi8>, \
tensor<192x10xi8>) -> tensor<1x10xi32>
    return %2 : tensor<1x10xi32>
  }
}
"""


@pytest.mark.parametrize("name", ["edge", "edge-tpu", "edgetpu", "Edge_TPU"])
def test_the_edge_tpu_has_one_name(name: str, tmp_path: Path) -> None:
    assert json.loads(run("hardware", "show", name, "-o", "json"))["name"] == "edgetpu"
    file = tmp_path / "int8.mlir"
    file.write_text(INT8)
    assert "on an Edge TPU" in run("estimate", str(file), "--accelerator-type", name)


def test_an_inference_on_an_edge_tpu(tmp_path: Path) -> None:
    file = tmp_path / "int8.mlir"
    file.write_text(INT8)
    found = json.loads(run("estimate", str(file), "--accelerator-type", "edgetpu", "-o", "json"))
    assert found["operations"] == {"convolution": 1, "reshape": 1, "dot_general": 1}
    assert found["macs"] == 8 * 8 * 3 * 3 * 3 * 3 + 1920
    assert found["weightBytes"] == 81 + 1920 and found["activationBytes"] == 192 + 40
    assert found["fits"] and found["seconds"] == pytest.approx(232 / 500e6)
    assert set(found["sources"]) >= {"watts", "sram_bytes"}
    large = INT8.replace("192x10x", "192x50000x").replace("1x10x", "1x50000x")
    file.write_text(large)
    text = run("estimate", str(file), "--accelerator-type", "edgetpu")
    assert "does not fit (9.6 MB of 8 MB): 1.6 MB come from the host at each inference" in text


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("xi8>", "xf32>", "cannot run convolution of f32: it computes with integers of 8 bits"),
        (
            "%1 = stablehlo.reshape %0 : (tensor<1x8x8x3xi8>) -> tensor<1x192xi8>",
            (
                "%s = stablehlo.cosine %0 : tensor<1x8x8x3xi8>\n"
                "    %1 = stablehlo.reshape %s : (tensor<1x8x8x3xi8>) -> tensor<1x192xi8>"
            ),
            r"cannot run cosine \(line 6\)",
        ),
    ],
)
def test_what_an_edge_tpu_cannot_run_is_named(old: str, new: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "float.mlir"
    file.write_text(INT8.replace(old, new))
    with pytest.raises(PodyardError, match=why):
        run("estimate", str(file), "--accelerator-type", "edgetpu")
    with pytest.raises(click.UsageError, match="specify FILE"):
        run("estimate", "mlp", "--accelerator-type", "edgetpu")
