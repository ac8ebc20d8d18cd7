"""StableHLO text and bytes: every form that JAX prints is read, what contradicts itself is refused
with its line."""

from __future__ import annotations

import dataclasses
import functools
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.base.errors import Code, PodyardError
from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Body, Program, live_operations, matrix_flops, walk
from podyard.engine.program.loops import trip_count
from podyard.engine.program.serialized import text_of_bytes
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse

Shape: Any = jax.ShapeDtypeStruct
F32, BF16, S32 = jnp.float32, jnp.bfloat16, jnp.int32
KEY = jax.eval_shape(lambda: jax.random.key(0))


def matrix_work(program: Program, body: Body | None = None) -> int:
    """Flops of products that a result depends on, each as often as the loops around it say."""
    body = body or program.body
    live, total = live_operations(body), 0
    for operation in body.operations:
        if id(operation) not in live:
            continue
        if operation.opcode in ("dot_general", "convolution"):
            total += matrix_flops(program, operation)
        turns = (trip_count(program, operation) or 1) if operation.opcode == "while" else 1
        total += turns * sum(matrix_work(program, inner) for inner in operation.bodies)
    return total


def signature(program: Program) -> tuple[list[str], list[str]]:
    body = program.body
    return [str(program.types[v]) for v in body.parameters], [
        str(program.types[v]) for v in body.results
    ]


def image_conv(x: Any, w: Any, **changes: Any) -> Any:
    names = "NHWC", "HWIO", "NHWC"
    options = {"window_strides": (1, 1), "padding": "VALID", **changes}
    return lax.conv_general_dilated(x, w, dimension_numbers=names, **options)


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g, -1, 1) * x,))

IMAGES, KERNEL = Shape((4, 12, 12, 8), F32), Shape((3, 3, 8, 16), F32)
SQUARE = Shape((32, 32), F32)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan": (lambda c, xs: lax.scan(lambda c, x: (c @ x, c.sum()), c, xs),
        (SQUARE, Shape((5, 32, 32), F32))),
    "scan in scan": (
        lambda a: lax.scan(lambda c, _: (lax.fori_loop(0, 3, lambda i, x: x @ x, c), None), a, None,
            length=4)[0],
        (SQUARE,),
    ),
    "while": (lambda a: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] @ a), (0, a)),
        (SQUARE,)),
    "while, open": (lambda a: lax.while_loop(lambda c: c.sum() < 10, lambda c: c @ a, a),
        (SQUARE,)),
    "cond": (lambda a: lax.cond(a[0, 0] > 0, lambda x: x @ x, lambda x: x, a), (SQUARE,)),
    "switch": (lambda i, a: lax.switch(i, [jnp.sin, lambda x: x @ x, lambda x: x], a),
        (Shape((), S32), SQUARE)),
    "gather": (lambda a, i: a[i], (Shape((100, 64), F32), Shape((32,), S32))),
    "scatter": (lambda a, i: a.at[i].add(1.0), (Shape((100, 64), F32), Shape((32,), S32))),
    "sort": (lambda a, b: lax.sort((a, b), num_keys=1), (SQUARE, Shape((32, 32), S32))),
    "top_k": (lambda a: lax.top_k(a, 5), (Shape((64, 1000), F32),)),
    "dilated conv": (functools.partial(image_conv, rhs_dilation=(2, 2)), (IMAGES, KERNEL)),
    "strided conv, gradients": (
        jax.grad(lambda x, w: (image_conv(x, w, window_strides=(2, 2), padding="SAME") ** 2).sum(),
            (0, 1)),
        (IMAGES, KERNEL),
    ),
    "depthwise conv, gradients": (
        jax.grad(lambda x, w: (image_conv(x, w, feature_group_count=8) ** 2).sum(), (0, 1)),
        (IMAGES, Shape((3, 3, 1, 8), F32)),
    ),
    "depthwise conv, by its kernel": (
        jax.grad(lambda w, x: image_conv(x, w, feature_group_count=8).sum()),
        (Shape((3, 3, 1, 8), F32), IMAGES),
    ),
    "conv over time": (
        lambda x,
        w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        (Shape((8, 128, 16), F32), Shape((3, 16, 32), F32)),
    ),
    "batched products": (
        lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k),
        (Shape((2, 64, 4, 32), BF16), Shape((2, 64, 4, 32), BF16)),
    ),
    "attention": (lambda q: jax.nn.dot_product_attention(q, q, q), (Shape((2, 64, 4, 32), BF16),)),
    "product of vectors": (lambda a, b: a @ b, (Shape((1000,), F32), Shape((1000,), F32))),
    "reduce_window": (
        lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        (IMAGES,)),
    "max pool, gradient": (jax.grad(lambda a: (max_pool(a) ** 2).sum()), (IMAGES,)),
    "cumsum": (lambda a: jnp.cumsum(a, 1), (SQUARE,)),
    "random": (lambda key: jax.random.normal(key, (32, 100)), (KEY,)),
    "dropout": (lambda key, a: jnp.where(jax.random.bernoulli(key, 0.5, a.shape), a @ a, 0),
        (KEY, SQUARE)),
    "custom_vjp": (jax.grad(lambda a: clipped(a @ a).sum()), (SQUARE,)),
    "remat": (jax.grad(jax.checkpoint(lambda a, b: jnp.sin(jnp.sin(a @ b) @ b).sum())),
        (SQUARE, SQUARE)),
    "jit in jit": (lambda a: jax.jit(lambda x: x @ x)(jax.jit(lambda x: x @ x)(a)), (SQUARE,)),
    "f16": (lambda a, b: a @ b, (Shape((32, 16), jnp.float16), Shape((16, 8), jnp.float16))),
    "int8": (
        lambda a, b: lax.dot(a, b, preferred_element_type=S32),
        (Shape((32, 16), jnp.int8), Shape((16, 8), jnp.int8)),
    ),
    "fp8": (lambda a: a.astype(jnp.float8_e4m3fn).astype(BF16) @ jnp.ones((32, 4), BF16),
        (SQUARE,)),
    "int4": (lambda a: a.astype(jnp.int4), (SQUARE,)),
    "bool": (lambda a: jnp.any(a, 1), (Shape((32, 32), bool),)),
    "complex": (lambda a: jnp.abs(jnp.fft.fft(a)), (Shape((8, 64), jnp.complex64),)),
    "softmax, gradient": (jax.grad(lambda a: (jax.nn.softmax(a) ** 2).sum()), (SQUARE,)),
    "vmap": (jax.vmap(lambda a, b: a @ b), (Shape((8, 16, 32), F32), Shape((8, 32, 16), F32))),
    "rows taken": (lambda a, i: jnp.take_along_axis(a, i, 1), (SQUARE, Shape((32, 1), S32))),
    "resized": (lambda a: jax.image.resize(a, (4, 24, 24, 8), "bilinear"), (IMAGES,)),
    "one result twice": (lambda a: (a, a), (SQUARE,)),
    "no argument": (lambda: jnp.ones((16, 16)), ()),
}  # fmt: skip


@functools.cache
def lowered(name: str) -> Any:
    function, arguments = FUNCTIONS[name]
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))


@functools.cache
def parsed(name: str) -> Program:
    return parse_stablehlo(lowered(name).as_text())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_jax_prints_says_the_same_as_the_jaxpr(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    traced = program_of_jaxpr(jax.make_jaxpr(function)(*arguments))
    for program in (parsed(name), parse_stablehlo(lowered(name).as_text(debug_info=True))):
        assert signature(program) == signature(traced)
        assert matrix_work(program) == matrix_work(traced)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_generic_form_costs_what_the_pretty_form_costs(name: str) -> None:
    operation = lowered(name).compiler_ir("stablehlo").operation
    generic = parse_stablehlo(operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
    assert signature(generic) == signature(parsed(name))
    # name stacks say what is computed again
    pretty = parse_stablehlo(lowered(name).as_text(debug_info=True))
    for kind in map(parse, ("v3-8", "v5p-8")):
        told, expected = (
            dataclasses.replace(
                estimate,
                ops=tuple(dataclasses.replace(op, where="") for op in estimate.ops),
                # Reasons name lines of the text, which differ.
                doubts=tuple(
                    dataclasses.replace(doubt, subject="", reason="") for doubt in estimate.doubts
                ),
            )
            for estimate in (estimate_program(generic, kind), estimate_program(pretty, kind))
        )
        assert told == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_operation_that_jax_prints_is_unknown_to_the_model(name: str) -> None:
    assert estimate_program(parsed(name), parse("v3-8")).unknown_ops == ()


@pytest.mark.parametrize(
    "name", ["dilated conv", "depthwise conv, by its kernel", "batched products", "vmap", "int8"]
)
def test_flops_are_those_that_xla_counts(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    counted: Any = jax.jit(function).lower(*arguments).cost_analysis()
    assert matrix_work(parsed(name)) == counted["flops"]


# --- modules by hand


def module(
    *lines: str,
    takes: str = "%a: tensor<4x8xf32>",
    gives: str = "tensor<4x8xf32>",
    outside: str = "",
) -> str:
    body = "\n".join(lines)
    return (
        f"module @m {{\nfunc.func public @main({takes}) -> ({gives}) {{\n{body}\n}}\n{outside}\n}}"
    )


def main_of(*lines: str, **types: str) -> list[tuple[str, dict[str, object]]]:
    program = parse_stablehlo(module(*lines, **types))
    return [(operation.opcode, operation.attributes) for operation in walk(program.body)]


def test_values_shadow_and_end_with_their_body() -> None:
    program = parse_stablehlo(
        module(
            '// a comment, with } and "',
            "%c = stablehlo.constant dense<0> : tensor<i32> loc(#loc)",
            "%0:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<4x8xf32> attributes "
            '{note = "} {"}',
            "cond {",
            "  %n = stablehlo.constant dense<12> : tensor<i32>",
            "  %less = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) "
            "-> tensor<i1>",
            "  stablehlo.return %less : tensor<i1>",
            "} do {",
            "  %n = stablehlo.constant dense<3> : tensor<i32>",
            '  %1 = stablehlo.add %i, %n : tensor<i32> loc("a(b"(#loc))',
            "  %2 = stablehlo.tanh %x : tensor<4x8xf32>",
            "  stablehlo.return %1, %2 : tensor<i32>, tensor<4x8xf32>",
            "}",
            "return %0#1 : tensor<4x8xf32> loc(#loc)",
            outside="#loc = loc(unknown)",
        )
    )
    loop = program.body.operations[1]
    assert (loop.opcode, trip_count(program, loop)) == ("while", 4)
    assert program.body.results == [loop.results[1]]


def test_case_has_one_body_for_each_branch() -> None:
    program = parse_stablehlo(
        module(
            '%0:2 = "stablehlo.case"(%i) ({',
            "  stablehlo.return %a, %a : tensor<4x8xf32>, tensor<4x8xf32>",
            "}, {",
            "  %1 = stablehlo.tanh %a : tensor<4x8xf32>",
            "  stablehlo.return %1, %a : tensor<4x8xf32>, tensor<4x8xf32>",
            "}) : (tensor<i32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)",
            "%2 = stablehlo.add %0#0, %0#1 : tensor<4x8xf32>",
            "return %2 : tensor<4x8xf32>",
            takes="%a: tensor<4x8xf32>, %i: tensor<i32>",
        )
    )
    branch, total = program.body.operations
    assert [[inner.opcode for inner in body.operations] for body in branch.bodies] == [[], ["tanh"]]
    assert (branch.operands, total.operands) == ((1,), branch.results)


REDUCED = {"takes": "%a: tensor<4x8xf32>, %z: tensor<f32>", "gives": "tensor<4xf32>"}


@pytest.mark.parametrize(
    "lines",
    [
        [("%0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : "
          "(tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>")],
        [("%0 = stablehlo.reduce(%a init: %z) across dimensions = [1] : (tensor<4x8xf32>, "
"tensor<f32>) -> tensor<4xf32>"),
         " reducer(%p: tensor<f32> loc(unknown), %q: tensor<f32>) {",
             "%1 = stablehlo.add %p, %q : tensor<f32>",
         "stablehlo.return %1 : tensor<f32>", "} loc(#loc3)"],
        ['%0 = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 1>}> ({',
            "^bb0(%p: tensor<f32>, %q: tensor<f32>):",
         '%1 = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>',
         '"stablehlo.return"(%1) : (tensor<f32>) -> ()',
         "}) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>"],
        ['%0 = "mhlo.reduce"(%a, %z) ({', "^bb0(%p: tensor<f32>, %q: tensor<f32>):",
         "%1 = mhlo.add %p, %q : tensor<f32>", "mhlo.return %1 : tensor<f32>",
         ("}) {dimensions = dense<1> : tensor<1xi64>} : (tensor<4x8xf32>, tensor<f32>) -> "
         "tensor<4xf32>")],
    ],
)  # fmt: skip
def test_every_form_of_a_reduction_is_the_same_reduction(lines: list[str]) -> None:
    read = main_of(*lines, "return %0 : tensor<4xf32>", **REDUCED)
    assert read[0] == ("reduce", {"dims": (1,), "by": "add"})
    assert [opcode for opcode, _ in read[1:]] in ([], ["add"])


@pytest.mark.parametrize(
    ("line", "opcode", "attributes"),
    [
        ("stablehlo.slice %a [0:4:2, 1:8] : (tensor<4x8xf32>) -> tensor<2x7xf32>", "slice",
         {"starts": (0, 1), "limits": (4, 8), "strides": (2, 1)}),
        ("stablehlo.transpose %a, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>",
            "transpose", {"dims": (1, 0)}),
        (("stablehlo.pad %a, %z, low = [1, 0], high = [0, 2], interior = [0, 0] : "
          "(tensor<4x8xf32>, tensor<f32>) -> tensor<5x10xf32>"), "pad",
         {"low": (1, 0), "high": (0, 2), "interior": (0, 0)}),
        (("stablehlo.concatenate %a, %a, dim = 1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> "
"tensor<4x16xf32>"),
         "concatenate", {"dim": 1}),
        ("stablehlo.constant dense<0x7F800000> : tensor<f32>", "constant", {"value": 0x7F800000}),
        ("stablehlo.constant dense<-1.5e+00> : tensor<4xf32>", "constant", {"value": -1.5}),
        ("stablehlo.constant dense<\"0x00FF\"> : tensor<2xui8>", "constant", {}),
        (("stablehlo.custom_call @lookup(%a) {backend_config = \"\"} : (tensor<4x8xf32>) -> "
"tensor<4x8xf32>"),
         "custom_call", {"target": "lookup"}),
        (("stablehlo.custom_call @Sharding(%a) {backend_config = \"\"} : (tensor<4x8xf32>) -> "
"tensor<4x8xf32>"),
         "optimization_barrier", {"target": "Sharding"}),
        (("stablehlo.dot %a, %b, precision = [DEFAULT, HIGHEST] : (tensor<4x8xf32>, "
"tensor<8x2xf32>) -> tensor<4x2xf32>"),
         "dot_general",
         {"lhs_contracting": (1,), "rhs_contracting": (0,), "lhs_batching": (), "rhs_batching": (),
                         "precision": "HIGHEST"}),
        ("stablehlo.select %p, %a, %a : tensor<i1>, tensor<4x8xf32>", "select", {}),
        (('"stablehlo.slice"(%a) {start_indices = dense<0> : tensor<2xi64>, limit_indices = '
'dense<4> : tensor<2xi64>, '
          "strides = dense<[1, 2]> : tensor<2xi64>} : (tensor<4x8xf32>) -> tensor<4x2xf32>"),
          "slice",
         {"starts": (0, 0), "limits": (4, 4), "strides": (1, 2)}),
        (('"stablehlo.pad"(%a, %z) {edge_padding_low = dense<1> : tensor<2xi64>, '
'edge_padding_high = dense<[0, 2]> : '
          "tensor<2xi64>} : (tensor<4x8xf32>, tensor<f32>) -> tensor<5x11xf32>"), "pad",
         {"low": (1, 1), "high": (0, 2)}),
    ],
)  # fmt: skip
def test_attributes_have_one_set_of_names(
    line: str, opcode: str, attributes: dict[str, object]
) -> None:
    takes = "%a: tensor<4x8xf32>, %b: tensor<8x2xf32>, %z: tensor<f32>, %p: tensor<i1>"
    assert main_of(f"%0 = {line}", "return %a : tensor<4x8xf32>", takes=takes) == [
        (opcode, attributes)
    ]


def test_top_k_gives_values_and_places() -> None:
    line = (
        "%values, %indices = chlo.top_k(%a, k = 5) : tensor<16xf32> -> (tensor<5xf32>, "
        "tensor<5xi32>)"
    )
    text = module(
        line, "return %values, %indices : tensor<5xf32>, tensor<5xi32>", takes="%a: tensor<16xf32>",
        gives="tensor<5xf32>, tensor<5xi32>",
    )  # fmt: skip
    program = parse_stablehlo(text)
    assert signature(program) == (["f32[16]"], ["f32[5]", "s32[5]"])
    assert (program.body.operations[0].opcode, program.body.operations[0].attributes["k"]) == (
        "top_k",
        5,
    )


def test_called_functions_stand_in_place_of_each_call() -> None:
    program = parse_stablehlo(
        module(
            '%0 = call @"odd name {"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>',
            "%1 = func.call @twice(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>",
            "return %1 : tensor<4x8xf32>",
            outside='func.func private @"odd name {"(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {\n'
            "%0 = stablehlo.tanh %a : tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>\n}\n"
            "func.func private @twice(%a: tensor<4x8xf32>) -> (tensor<4x8xf32> {mhlo.layout_mode "
            '= "default"}) {\n'
            '%0 = call @"odd name {"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n'
            '%1 = call @"odd name {"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn %1 : '
            "tensor<4x8xf32>\n}",
        )
    )
    assert [operation.opcode for operation in program.body.operations] == ["tanh"] * 3
    assert [operation.operands for operation in program.body.operations[1:]] == [
        operation.results for operation in program.body.operations[:-1]
    ]


def test_donated_arguments_are_known_in_text_and_jaxpr() -> None:
    step = jax.jit(lambda w, m, x: (w - m @ x, m * 0.9), donate_argnums=(0, 1))
    arguments = (SQUARE, SQUARE, SQUARE)
    text = step.trace(*arguments).lower(lowering_platforms=("tpu",)).as_text()
    programs = parse_stablehlo(text), program_of_jaxpr(jax.make_jaxpr(step)(*arguments))
    assert [program.donated for program in programs] == [{0: 0, 1: 1}, {0: 0, 1: 1}]


# --- bytes


def test_serialized_programs_are_read_like_their_text() -> None:
    function, arguments = FUNCTIONS["scan"]
    with warnings.catch_warnings():
        # A shape without names has no pytree of its own to keep.
        warnings.simplefilter("ignore")
        exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*arguments)
    artifact = bytes(exported.serialize())
    bytecode = io.BytesIO()
    lowered("scan").compiler_ir("stablehlo").operation.write_bytecode(bytecode)
    for data in (
        artifact,
        bytecode.getvalue(),
        exported.mlir_module_serialized,
        lowered("scan").as_text().encode(),
    ):
        program = parse_stablehlo(text_of_bytes(data))
        assert signature(program) == signature(parsed("scan"))
        assert matrix_work(program) == matrix_work(parsed("scan"))


def test_damaged_bytes_are_refused() -> None:
    file = io.BytesIO()
    lowered("scan").compiler_ir("stablehlo").operation.write_bytecode(file)
    bytecode = file.getvalue()
    for data in (
        bytecode[:40],
        bytecode[: len(bytecode) // 2],
        bytecode[:4] + bytes(100),
        b"\x00",
        b"\xff\xfe",
        bytes(99),
    ):
        with pytest.raises(PodyardError) as refused:
            text_of_bytes(data)
        assert refused.value.code is Code.INVALID_ARGUMENT


def test_more_than_64_mb_are_refused_before_they_are_read() -> None:
    for read in (
        lambda: text_of_bytes(bytes(64 * 2**20 + 1)),
        lambda: parse_stablehlo(" " * (64 * 2**20 + 1)),
    ):
        with pytest.raises(PodyardError, match=r"67108865 .* 67108864"):
            read()


# --- what is refused

RETURN = "return %a : tensor<4x8xf32>"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("%0 = stablehlo.tanh %b : tensor<4x8xf32>", "value %b is not defined"),
        ("%0 = stablehlo.tanh %a#1 : tensor<4x8xf32>", "value %a#1 is not defined"),
        ("%0 = stablehlo.tanh %a : tensor<?x8xf32>", "dynamic shape without a bound"),
        ("%0 = stablehlo.tanh %a : tensor<4x8xf128>", "unknown element type 'f128'"),
        ("%0 = stablehlo.tanh %a : tensor<4x8x!quant.uniform<i8:f32, 2.0>>", "not a tensor type"),
        ("%0 = stablehlo.tanh %a : tensor<9999999999999999999xf32>", "larger than any memory"),
        ("%0 = stablehlo.tanh %a : f32", "'f32' is not a tensor type"),
        ("%0 = stablehlo.tanh %a : tensor<8x4xf32>", "'stablehlo.tanh' does not fit its operands"),
        ("%0 = stablehlo.tanh %a : tensor<4x8xf32", "'<' is not closed"),
        ("%0:2 = stablehlo.tanh %a : tensor<4x8xf32>", "'stablehlo.tanh' has 1 results"),
        ("%0 = stablehlo.add %a : tensor<4x8xf32>", "'stablehlo.add' has 1 operands"),
        ("%0 = stablehlo.dot %a, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>",
            "does not fit"),
        ("%0 = stablehlo.transpose %a, dims = [1, 7] : (tensor<4x8xf32>) -> tensor<8x4xf32>",
            "does not fit"),
        ("return %a : tensor<4x4xf32>", "a return says other types"),
        ("%0 = stablehlo.slice %a [0:4, 0:9:0] : (tensor<4x8xf32>) -> tensor<4x8xf32>",
            "does not fit"),
        ("%0 = call @main(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>", "@main calls itself"),
        ("%0 = call @other(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>",
            "@other is called and not defined"),
        ("%0 = stablehlo.while(%i = %a) : tensor<4x8xf32>", "'stablehlo.while' has 0 bodies"),
        ("%0 = stablehlo.custom_call @f(%a) {a = " + "[" * 200 + "]" * 200 + ("} : (tensor<4x8xf32>"
") -> "
"tensor<4x8xf32>"),
         "nested more than 100 deep"),
        ("%0 = stablehlo.constant dense<" + "9" * 90 + "> : tensor<f32>", "too long for a number"),
        ("%0 = $", "unexpected character '\\$'"),
        ("}", "behind the end of the module|expected a function"),
        ("%0", "expected '='"),
        ("stablehlo.tanh %a : tensor<4x8xf32>",
            "'stablehlo.tanh' has 1 results, not as many as it names"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(PodyardError, match=problem) as refused:
        parse_stablehlo(module("", line, RETURN))
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert "line 4" in refused.value.message or line in ("}", "%0")


def test_double_precision_is_not_implemented_on_the_hardware() -> None:
    with pytest.raises(
        PodyardError, match=r"line 3: TPUs have no f64 \(tensor<4x8xf64>\)"
    ) as refused:
        parse_stablehlo(
            module("%0 = stablehlo.convert %a : (tensor<4x8xf32>) -> tensor<4x8xf64>", RETURN)
        )
    assert refused.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "module {", "module {\n}", "}", "{" * 3000, "\x00\x01", "module @m {\nfunc.func"],
)
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(PodyardError, match=r"line \d+") as refused:
        parse_stablehlo(text)
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.slow
def test_functions_that_double_at_each_level_are_refused_in_time() -> None:
    type_ = "tensor<4x8xf32>"
    levels = [
        f"func.func private @f{level}(%a: {type_}) -> {type_} {{\n%0 = call @f{level + 1}(%a) : "
        f"({type_}) -> {type_}\n"
        f"%1 = call @f{level + 1}(%0) : ({type_}) -> {type_}\nreturn %1 : {type_}\n}}"
        for level in range(60)
    ]
    last = f"func.func private @f60(%a: {type_}) -> {type_} {{\n{RETURN}\n}}"
    text = module(
        f"%0 = call @f0(%a) : ({type_}) -> {type_}", RETURN, outside="\n".join([*levels, last])
    )
    started = time.process_time()
    with pytest.raises(PodyardError, match=r"times as long|more than 2000000 values"):
        parse_stablehlo(text)
    assert time.process_time() - started < 20


def test_bodies_in_bodies_without_end_are_refused() -> None:
    opened = '%0 = "stablehlo.case"(%i) ({\n' * 5000
    with pytest.raises(PodyardError, match="nested more than 100 deep"):
        parse_stablehlo(module(opened, takes="%a: tensor<4x8xf32>, %i: tensor<i32>") + "}" * 5000)
