"""Estimates of programs that are not modelled in full: an error, or "lower bound" in the first line
with the reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from podyard.base.errors import Code, PodyardError
from podyard.cli.programs.estimate import estimate as estimate_command
from podyard.cli.programs.plan.command import plan as plan_command
from podyard.engine import Estimate, analyze, analyze_stablehlo
from podyard.engine.program.doubts import Doubt
from podyard.engine.report import compare, html
from podyard.engine.report.document import document
from podyard.engine.report.summary import Report
from tests.unit.engine.compiled import cases

P: Any = PartitionSpec
SHAPE: Any = jax.ShapeDtypeStruct
lax: Any = jax.lax
config: Any = jax.config
X = SHAPE((512, 512), jnp.float32)
COUNT = SHAPE((), jnp.int32)


def mesh_of(**sizes: int) -> Any:
    kinds = (AxisType.Auto,) * len(sizes)
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds)


GRID = mesh_of(data=8, model=4)
LINE = mesh_of(data=32)


def placed(mesh: Any, spec: Any, *shape: int) -> Any:
    return SHAPE(shape, jnp.float32, sharding=NamedSharding(mesh, spec))


def text_of(function: Any, *arguments: Any, shardy: bool = True) -> str:
    before = config.jax_use_shardy_partitioner
    config.update("jax_use_shardy_partitioner", shardy)
    try:
        return str(jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",)).as_text())
    finally:
        config.update("jax_use_shardy_partitioner", before)


def headline(estimate: Estimate) -> str:
    return Report("step", estimate).headline


def kinds(estimate: Estimate) -> set[str]:
    return {doubt.kind for doubt in estimate.doubts}


def main_of(
    body: str, arguments: str = "%a: tensor<512x512xf32>", attributes: str = "", mesh: str = ""
) -> str:
    given = f"attributes {{{attributes}}} " if attributes else ""
    result = "tensor<512x512xf32>"
    return (
        f"module @m {given}{{\n{mesh}\nfunc.func public @main({arguments}) -> {result} "
        f"{{\n{body}\n}}\n}}"
    )


def mlp(x: Any, first: Any, second: Any) -> Any:
    return jnp.maximum(x @ first, 0) @ second


# --- shardings


@pytest.mark.parametrize("shardy", [True, False], ids=["shardy", "gspmd"])
@pytest.mark.parametrize(
    ("specs", "parts", "sent"),
    [
        (
            (P("data", None), P(None, "model"), P("model", None)),
            (8, 4, 4),
            [("all-reduce", 4, 32 * 1024 * 4)],
        ),
        ((P("data", "model"), P(), P()), (32, 1, 1), [("all-reduce", 4, 32 * 4096 * 4)]),
        ((P("data", None), P(), P()), (8, 1, 1), []),  # replicated over "model": 8 parts, not 32
    ],
)
def test_two_mesh_axes_in_stablehlo_are_no_doubt(
    specs: tuple[Any, ...], parts: tuple[int, ...], sent: list[tuple[str, int, int]], shardy: bool
) -> None:
    shapes = ((256, 1024), (1024, 4096), (4096, 1024))
    arguments = [placed(GRID, spec, *shape) for spec, shape in zip(specs, shapes, strict=True)]
    estimate = analyze_stablehlo(text_of(mlp, *arguments, shardy=shardy), "v3-32")
    assert estimate.doubts == ()
    assert estimate.argument_bytes == sum(
        4 * a * b // n for (a, b), n in zip(shapes, parts, strict=True)
    )
    assert [(one.kind, one.group_size, one.nbytes) for one in estimate.collective_ops] == sent
    same = analyze(mlp, *arguments, accelerator_type="v3-32")
    # GSPMD's meshes have no names
    assert same.collective_ops == estimate.collective_ops or not shardy
    assert same.argument_bytes == estimate.argument_bytes


@pytest.mark.parametrize("shardy", [True, False], ids=["shardy", "gspmd"])
def test_a_constraint_over_a_second_mesh_axis_is_no_doubt(shardy: bool) -> None:
    def step(x: Any, w: Any) -> Any:
        return lax.with_sharding_constraint(x @ w, NamedSharding(GRID, P(None, "model")))

    arguments = placed(GRID, P(), 256, 1024), placed(GRID, P(), 1024, 4096)
    estimate = analyze_stablehlo(text_of(step, *arguments, shardy=shardy), "v3-32")
    assert estimate.doubts == ()
    assert estimate.result_bytes == 256 * 4096 * 4 // 4


def test_a_sharding_that_is_not_understood_is_a_doubt() -> None:
    argument = '%a: tensor<512x512xf32> {mhlo.sharding = "{maximal device=3}"}'
    text = main_of("return %a : tensor<512x512xf32>", argument, "mhlo.num_partitions = 8 : i32")
    assert "the sharding of argument 0 is not read: {maximal device=3}" in headline(
        analyze_stablehlo(text, "v3-8")
    )


@pytest.mark.parametrize("spec", [P("data", None), P(("data", "model"), None)])
@pytest.mark.parametrize("shardy", [True, False], ids=["shardy", "gspmd"])
def test_one_axis_over_all_devices_is_no_doubt(spec: Any, shardy: bool) -> None:
    mesh = LINE if spec == P("data", None) else GRID
    arguments = placed(mesh, spec, 512, 512), placed(mesh, P(), 512, 512)
    estimate = analyze_stablehlo(text_of(jnp.matmul, *arguments, shardy=shardy), "v3-32")
    assert estimate.doubts == ()
    assert estimate.argument_bytes == (16 * 512 + 512 * 512) * 4  # 512 rows over 32 devices


def test_results_are_placed_as_the_program_says() -> None:
    step = jax.jit(lambda w: w * 2, out_shardings=NamedSharding(LINE, P("data", None)))
    text = str(step.trace(placed(LINE, P(), 512, 512)).lower(lowering_platforms=("tpu",)).as_text())
    for estimate in (analyze_stablehlo(text, "v3-32"), analyze(step, X, accelerator_type="v3-32")):
        assert estimate.doubts == ()
        assert estimate.result_bytes == 512 * 512 * 4 // 32


def test_arguments_of_a_function_on_a_mesh_of_two_axes_are_split() -> None:
    arguments = placed(GRID, P("data", None), 256, 1024), placed(GRID, P(None, "model"), 1024, 4096)
    plain = SHAPE((256, 1024), jnp.float32), SHAPE((1024, 4096), jnp.float32)
    assert (
        analyze(jnp.matmul, *plain, accelerator_type="v3-32").argument_bytes
        == 256 * 4096 + 4096 * 4096
    )
    estimate = analyze(jnp.matmul, *arguments, accelerator_type="v3-32")  # the same shapes again
    assert (estimate.doubts, estimate.argument_bytes) == ((), 256 * 4096 // 8 + 4096 * 4096 // 4)
    step = jax.jit(jnp.sin, in_shardings=NamedSharding(GRID, P("data", "model")))
    assert analyze(step, X, accelerator_type="v3-32").argument_bytes == 512 * 512 * 4 // 32


def test_arguments_of_a_function_along_one_axis_are_split() -> None:
    arguments = placed(LINE, P("data", None), 512, 512), placed(LINE, P(), 512, 512)
    given = analyze(jnp.matmul, *arguments, accelerator_type="v3-32")
    text = analyze_stablehlo(text_of(jnp.matmul, *arguments), "v3-32")
    assert given.doubts == text.doubts == ()
    assert given.argument_bytes == text.argument_bytes == (16 * 512 + 512 * 512) * 4


# --- devices


def test_a_mesh_of_another_size_than_num_partitions_is_an_error() -> None:
    argument = '%a: tensor<512x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    mesh = 'sdy.mesh @mesh = <["x"=8]>'
    text = main_of(
        "return %a : tensor<512x512xf32>", argument, "mhlo.num_partitions = 4 : i32", mesh
    )
    with pytest.raises(
        PodyardError, match=r"mesh @mesh .* has 8 devices, and mhlo\.num_partitions is 4"
    ) as caught:
        analyze_stablehlo(text, "v3-32")
    assert caught.value.code is Code.INVALID_ARGUMENT
    unsaid = main_of("return %a : tensor<512x512xf32>", argument, mesh=mesh)
    # JAX leaves it at 1 for a shard_map
    assert analyze_stablehlo(unsaid, "v3-8").argument_bytes == 512 * 512 * 4 // 8
    tiled = main_of(
        "return %a : tensor<512x512xf32>",
        '%a: tensor<512x512xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}',
        "mhlo.num_partitions = 4 : i32",
    )
    with pytest.raises(
        PodyardError, match=r"sharding of argument 0 has 8 devices, and mhlo\.num_partitions is 4"
    ):
        analyze_stablehlo(tiled, "v3-32")


def test_a_program_for_fewer_devices_than_the_slice_has_is_one_for_them() -> None:
    mesh = mesh_of(data=8)
    arguments = placed(mesh, P("data", None), 512, 512), placed(mesh, P("data", None), 512, 512)
    wide, narrow = (
        analyze_stablehlo(text_of(jnp.matmul, *arguments), kind) for kind in ("v3-32", "v3-8")
    )
    assert (wide.doubts, wide.devices) == ((), 8)
    assert (wide.argument_bytes, wide.cycles) == (narrow.argument_bytes, narrow.cycles)


def test_replicas_are_a_doubt() -> None:
    text = main_of("return %a : tensor<512x512xf32>", attributes="mhlo.num_replicas = 8 : i32")
    assert "mhlo.num_replicas is 8" in headline(analyze_stablehlo(text, "v3-8"))


@pytest.mark.parametrize(
    ("partitions", "groups", "reason"),
    [
        (8, "dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>", ""),
        (
            8,
            "dense<[[0, 1], [2, 5], [4, 3], [6, 7]]> : tensor<4x2xi64>",
            "over groups of 2 devices: priced over all 8",
        ),
        (
            1,
            "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>",
            "is written for one device: it takes no time",
        ),
        (8, "dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>", ""),
        (
            8,
            'dense<"0x00000000000000000100000000000000"> : tensor<4x2xi64>',
            "over groups of 2 devices",
        ),
    ],
)
def test_collectives_are_priced_by_their_groups_or_in_doubt(
    partitions: int, groups: str, reason: str
) -> None:
    body = f"""%0 = "stablehlo.all_reduce"(%a) <{{replica_groups = {groups}}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<512x512xf32>) -> tensor<512x512xf32>
      return %0 : tensor<512x512xf32>"""
    estimate = analyze_stablehlo(
        main_of(body, attributes=f"mhlo.num_partitions = {partitions} : i32"), "v3-8"
    )
    assert kinds(estimate) == ({"collective"} if reason else set())
    assert reason in headline(estimate)


# --- shard_map


@pytest.mark.parametrize("form", ["function", "shardy", "gspmd"])
@pytest.mark.parametrize("mesh", [LINE, GRID], ids=["line", "grid"])
def test_a_shard_map_is_one_devices_program(form: str, mesh: Any) -> None:
    mapped: Any = jax.shard_map(
        lambda x: lax.psum(x @ x.T, "data"), mesh=mesh, in_specs=P("data", None), out_specs=P(),
        check_vma=False,
    )  # fmt: skip
    argument, parts = placed(mesh, P("data", None), 512, 512), mesh.shape["data"]
    if form == "function":
        estimate = analyze(mapped, argument, accelerator_type="v3-32")
    else:
        estimate = analyze_stablehlo(text_of(mapped, argument, shardy=form == "shardy"), "v3-32")
    assert estimate.doubts == ()
    assert estimate.argument_bytes == 512 * 512 * 4 // parts
    (psum,) = estimate.collective_ops
    assert (psum.kind, psum.group_size, psum.nbytes) == (
        "all-reduce",
        parts,
        (512 // parts) ** 2 * 4,
    )


def test_a_shard_map_over_one_device_is_no_doubt() -> None:
    mapped: Any = jax.shard_map(
        jnp.sin, mesh=mesh_of(data=1), in_specs=P("data"), out_specs=P("data")
    )
    assert analyze(mapped, X).doubts == ()


# --- loops


def until_large(x: Any) -> Any:
    return lax.while_loop(lambda s: jnp.sum(s) < 1e6, lambda s: s @ s, x)


def guarded(x: Any) -> Any:
    return lax.while_loop(
        lambda s: (s[0] < 10) & (jnp.sum(s[1]) < 1e6),
        lambda s: (s[0] + 1, s[1] @ s[1]),
        (jnp.int32(0), x),
    )


def counted_by_argument(x: Any, count: Any) -> Any:
    return lax.fori_loop(0, count, lambda _, s: s @ s, x)


def triangular(x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, s: lax.fori_loop(0, i, lambda _, t: t @ t, s), x)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(until_large, (X,)), (guarded, (X,)), (counted_by_argument, (X, COUNT)), (triangular, (X,))],
)
def test_a_loop_whose_turns_are_not_known_is_named_in_the_headline(
    function: Any, arguments: tuple[Any, ...]
) -> None:
    text = text_of(function, *arguments)
    as_text, as_function = analyze_stablehlo(text, "v3-8"), analyze(function, *arguments)
    line = as_text.doubts[0].subject.removeprefix("line ")
    assert "stablehlo.while" in text.splitlines()[int(line) - 1]
    assert f"unknown number of turns of the loop at line {line}" in headline(as_text)
    assert f"unknown number of turns of the loop at {Path(__file__).name}:" in headline(as_function)
    for estimate in (as_text, as_function):
        assert kinds(estimate) == {"loop"}
        assert "lower bound: at least " in headline(estimate)
        assert "; fits (lower" not in headline(estimate)  # one turn holds as much memory as all


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_a_loop_whose_turns_are_known_is_no_doubt(turns: int) -> None:
    def scanned(x: Any) -> Any:
        return lax.scan(lambda s, _: (s @ s, None), x, None, length=turns)[0]

    def stepped(x: Any) -> Any:
        return lax.while_loop(
            lambda s: s[0] > 0, lambda s: (s[0] - 2, s[1] @ s[1]), (jnp.int32(2 * turns), x)
        )[1]

    for function in (scanned, stepped):
        for estimate in (analyze(function, X), analyze_stablehlo(text_of(function, X))):
            assert estimate.doubts == ()
            assert sum(op.count for op in estimate.ops if op.kind == "matrix") == turns


# --- operations


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (
            "%0 = stablehlo.custom_call @my_attention(%a) : (T) -> T",
            "custom_call @my_attention (line 4)",
        ),
        ('%0 = "stablehlo.frobnicate"(%a) {a = 1 : i32} : (T) -> T', "frobnicate (line 4)"),
        ("%0 = stablehlo.cholesky %a, lower = true : T", "cholesky (line 4)"),
    ],
)
def test_an_operation_that_is_not_modelled_is_in_the_headline(body: str, name: str) -> None:
    text = main_of(body.replace("T", "tensor<512x512xf32>") + "\nreturn %0 : tensor<512x512xf32>")
    assert text.splitlines()[3].startswith("%0")
    assert f"operation {name} is not modelled: priced by its bytes only" in headline(
        analyze_stablehlo(text)
    )


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (jnp.sort, "sort"),
        (lambda x: jnp.fft.fft(x).real, "fft"),
        (lambda x: lax.top_k(x, 4), "top_k"),
        (lambda x: jax.pure_callback(lambda y: y, X, x), "pure_callback"),
        # In the branch that takes less time, too: which one runs is not known.
        (
            lambda x: lax.cond(x[0, 0] > 0, lambda y: jnp.sort(y), lambda y: y @ y @ y @ y, x),
            "sort",
        ),
    ],
)
def test_a_primitive_that_is_not_modelled_is_in_the_headline(function: Any, name: str) -> None:
    assert f"operation {name} is not modelled" in headline(analyze(function, X))


def test_doubts_of_one_kind_are_counted() -> None:
    estimate = analyze(lambda x: (jnp.sort(x), jnp.sort(x + 1), jnp.sort(x, axis=0)), X)
    assert estimate.reasons == (
        "operation sort is not modelled: priced by its bytes only (3 times)",
    )


# --- outputs


@pytest.fixture
def unknown_loop(tmp_path: Path) -> str:
    path = tmp_path / "step.mlir"
    path.write_text(text_of(until_large, X))
    return str(path)


def run(command: Any, *arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code in (0, None), result.output
    return str(result.output)


def test_the_command_line_says_it_first(unknown_loop: str) -> None:
    reason = "unknown number of turns of the loop at line 3: counted as one turn"
    text = run(estimate_command, unknown_loop)
    assert text.splitlines()[0].startswith("v3-8: lower bound: at least ")
    assert reason in text.splitlines()[0]
    told = json.loads(run(estimate_command, unknown_loop, "-o", "json"))
    assert (told["confidence"], told["lowerBounds"], told["reasons"]) == (
        "lower bound",
        ["modelledSeconds"],
        [reason],
    )
    compared = run(estimate_command, unknown_loop, "--compare", "v4-8")
    assert "v4-8: lower bound, also its costs and ratios, because: " + reason in compared
    rows = [json.loads(run(estimate_command, unknown_loop, "--compare", "v4-8", "-o", "json"))][0]
    assert [row["confidence"] for row in rows] == ["lower bound"] * 2


def test_a_plan_marks_rows_that_are_lower_bounds(unknown_loop: str) -> None:
    arguments = (
        unknown_loop,
        "--steps",
        "100",
        "--types",
        "v3-8",
        "--samples",
        "100",
        "--fleet",
        "default",
    )
    text = run(plan_command, *arguments)
    assert "at least 40.0 us" in text
    assert "Lower bound: " in text.splitlines()[-1]
    told = json.loads(run(plan_command, *arguments, "-o", "json"))
    assert {row["confidence"] for row in told["rows"]} == {"lower bound"}
    assert all("line 3" in row["reasons"][0] for row in told["rows"])


def test_the_page_and_the_document_carry_doubts_and_only_doubts() -> None:
    plain = analyze(jnp.matmul, X, X, accelerator_type="v3-32")
    doubt = Doubt("operation", "custom_call", "operation custom_call is not modelled")
    doubtful = dataclasses.replace(plain, doubts=(doubt,))
    pages = [
        html.page([compare.Outcome("v3-32", Report("p", estimate))])
        for estimate in (plain, doubtful)
    ]
    assert ["lower bound" in page for page in pages] == [False, True]
    assert '<p class="lead">v3-32: lower bound: at least ' in pages[1]
    without, told = document(Report("p", plain)), document(Report("p", doubtful))
    assert told.keys() - without.keys() == {"confidence", "lowerBounds", "reasons"}
    assert told["lowerBounds"] == ["modelledSeconds", "peakHbmBytes", "fits"]


def test_the_headline_names_three_reasons_and_counts_the_others() -> None:
    doubts = tuple(Doubt("operation", name, f"operation {name}") for name in "abcde")
    estimate = dataclasses.replace(analyze(jnp.sin, X), doubts=doubts)
    assert headline(estimate).endswith("because: operation a; operation b; operation c; and 2 more")


# --- programs that the model was fitted on


@pytest.mark.slow
def test_programs_of_the_fitted_families_have_no_doubts() -> None:
    """But for two: the arithmetic of a sort is not modelled. The first of each kind and generation,
    and all sharded steps, so that the check stays short."""
    chosen = {(case.kind, case.generation): case for case in reversed(cases())}
    some = [
        *chosen.values(),
        *(case for case in cases() if case.kind in ("collective", "train_step_dp")),
    ]
    doubtful = {case.case: case.estimate().reasons for case in some if case.estimate().doubts}
    assert doubtful == {}
    sorts = [case for case in cases() if "stablehlo.sort" in case.text]
    assert [case.case for case in sorts] == ["ew-v3-f32-sort-1024x1024", "ew-v3-f32-sort-100x1000"]
    assert all("operation sort" in headline(case.estimate()) for case in sorts)
