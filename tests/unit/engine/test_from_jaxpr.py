"""A jaxpr becomes the operations that it is lowered to; what hardware or model lack is said by
name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

from podyard import engine
from podyard.base.errors import Code, PodyardError
from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.ir import Program, walk
from podyard.engine.program.loops import trip_count

Shape: Any = jax.ShapeDtypeStruct
F32 = jnp.float32
SQUARE = Shape((32, 32), F32)


def traced(function: Callable[..., Any], *arguments: Any) -> Program:
    return program_of_jaxpr(jax.make_jaxpr(function)(*arguments))


def opcodes(program: Program) -> list[str]:
    return [operation.opcode for operation in walk(program.body)]


def parameters(program: Program) -> list[str]:
    return [str(program.types[value]) for value in program.body.parameters]


def test_unknown_primitive_is_kept_by_name_and_told() -> None:
    blur: Any = Primitive("blur_sideways")
    blur.def_abstract_eval(lambda aval: aval)
    estimate = engine.analyze(lambda x: blur.bind(x @ x) + 1.0, SQUARE, accelerator_type="v3-8")
    assert estimate.unknown_ops == ("blur_sideways",)
    assert opcodes(traced(lambda x: blur.bind(x), SQUARE)) == ["blur_sideways"]
    assert engine.analyze(lambda x: x @ x, SQUARE).unknown_ops == ()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_double_precision_is_refused_by_name(dtype: Any) -> None:
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(lambda x: x * 2)(Shape((3, 5), dtype))
    with pytest.raises(
        PodyardError, match=rf"TPUs have no {np.dtype(dtype).name}: .* \(3, 5\)"
    ) as refused:
        program_of_jaxpr(closed)
    assert refused.value.code is Code.UNIMPLEMENTED


def test_double_precision_inside_of_a_loop_is_refused() -> None:
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(
            lambda x: lax.fori_loop(0, 3, lambda _, y: (y.astype(np.float64) * 2).astype(F32), x)
        )(SQUARE)
    with pytest.raises(PodyardError, match="float64"):
        program_of_jaxpr(closed)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_eight_bit_floats_take_one_byte(name: str) -> None:
    program = traced(lambda x: x.astype(F32), Shape((7, 9), getattr(jnp, name)))
    assert parameters(program) == [f"f8{name.removeprefix('float8_')}[7,9]"]
    assert program.types[program.body.parameters[0]].nbytes == 63


def test_four_bit_integers_take_half_a_byte() -> None:
    program = traced(lambda x: x.astype(jnp.int4), Shape((7, 9), F32))
    assert program.types[program.body.results[0]].nbytes == 32


def test_eight_bit_float_that_no_tpu_has_is_refused() -> None:
    with pytest.raises(PodyardError, match="TPUs have no float8_e4m3fnuz"):
        traced(lambda x: x.astype(F32), Shape((7, 9), jnp.float8_e4m3fnuz))


def test_arguments_that_nothing_reads_take_no_memory() -> None:
    def step(used: Any, shown: Any, unused: Any, dead: Any) -> Any:
        _ = dead @ dead
        return used + 1.0, shown

    program = traced(step, SQUARE, Shape((3,), F32), Shape((5,), F32), Shape((64, 64), F32))
    assert parameters(program) == ["f32[32,32]", "f32[3]"]
    assert (
        engine.analyze(step, SQUARE, Shape((3,), F32), Shape((5,), F32), Shape((64, 64), F32)).flops
        == 32 * 32
    )


def test_argument_that_only_a_loop_reads_is_kept() -> None:
    program = traced(lambda x, w: lax.fori_loop(0, 4, lambda _, y: y @ w, x), SQUARE, SQUARE)
    assert parameters(program) == ["f32[32,32]", "f32[32,32]"]


@pytest.mark.parametrize(
    ("implementation", "words"), [("threefry2x32", 2), ("rbg", 4), ("unsafe_rbg", 4)]
)
def test_random_key_is_its_words(implementation: str, words: int) -> None:
    key = jax.eval_shape(lambda: jax.random.key(0, impl=implementation))
    program = traced(lambda key: jax.random.uniform(key, (16, 16)), key)
    assert parameters(program) == [f"u32[{words}]"]
    assert opcodes(program).count("xor") > 4 or "rng_bit_generator" in opcodes(program)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0, impl=implementation), 5))
    assert parameters(traced(lambda keys: jax.random.key_data(keys), keys)) == [f"u32[5,{words}]"]


def test_donated_argument_goes_to_the_first_free_result_of_its_type() -> None:
    def step(a: Any, b: Any, c: Any, d: Any) -> Any:
        return (c * 2.0).sum(), b * 1.0, a + d[0]

    arguments = (SQUARE, SQUARE, SQUARE, Shape((7,), F32))
    program = traced(jax.jit(step, donate_argnums=(0, 2, 3)), *arguments)
    assert program.donated == {0: 1, 2: 2}
    assert traced(jax.jit(step), *arguments).donated == {}
    assert traced(step, *arguments).donated == {}


@pytest.mark.parametrize(
    ("function", "turns"),
    [
        (lambda x: lax.fori_loop(0, 7, lambda _, y: y * 2, x), 7),
        (lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=9)[0], 9),
        (lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] * 2), (0, x)), 4),
        (lambda x: lax.while_loop(lambda c: c[0] >= 1, lambda c: (c[0] - 2, c[1] * 2), (10, x)), 5),
        (
            lambda x: lax.while_loop(
                lambda c: lax.gt(5, c[0]), lambda c: (1 + c[0], c[1] * 2), (0, x)
            ),
            5,
        ),
        (
            lambda x: lax.while_loop(
                lambda c: lax.ne(c[0], 6), lambda c: (c[0] + 2, c[1] * 2), (0, x)
            ),
            3,
        ),
        (lambda x: lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] * 2), (3, x)), 0),
        (
            lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] - 1, c[1] * 2), (0, x)),
            None,
        ),
        (
            lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] * 2, c[1] * 2), (1, x)),
            None,
        ),
        (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), None),
    ],
)
def test_loops_say_how_often_they_run_where_the_program_does(
    function: Callable[..., Any], turns: int | None
) -> None:
    program = traced(function, SQUARE)
    loop = next(operation for operation in program.body.operations if operation.opcode == "while")
    assert trip_count(program, loop) == turns


def test_loop_without_known_count_is_priced_once() -> None:
    def loop(turns: Any, x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < turns, lambda c: (c[0] + 1, c[1] @ x), (0, x))[1]

    open_end = engine.analyze(loop, Shape((), jnp.int32), Shape((512, 512), F32))
    ten = engine.analyze(lambda x: loop(10, x), Shape((512, 512), F32))
    product = 2 * 512**3
    assert (open_end.flops // product, ten.flops // product) == (1, 10)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(1, []), (2, ["multiply"]), (3, ["multiply"] * 2), (4, ["multiply"] * 2),
        (7, ["multiply"] * 4),
     (15, ["multiply"] * 6), (-1, ["constant", "broadcast_in_dim", "divide"]),
     (-2, ["multiply", "constant", "broadcast_in_dim", "divide"])],
)  # fmt: skip
def test_integer_power_is_multiplications_by_squaring(exponent: int, expected: list[str]) -> None:
    program = traced(lambda x: lax.integer_pow(x, exponent), SQUARE)
    assert opcodes(program) == expected
    assert [str(program.types[value]) for value in program.body.results] == ["f32[32,32]"]


def test_zeroth_power_is_a_constant() -> None:
    program = traced(lambda x: lax.integer_pow_p.bind(x, y=0), SQUARE)
    assert opcodes(program) == ["constant", "broadcast_in_dim"]
    assert parameters(program) == []


def test_reshape_of_other_order_turns_its_operand_first() -> None:
    program = traced(lambda x: lax.reshape(x, (6, 4), dimensions=(2, 0, 1)), Shape((2, 3, 4), F32))
    turned, reshaped = program.body.operations
    assert (turned.opcode, turned.ints("dims"), reshaped.opcode) == (
        "transpose",
        (2, 0, 1),
        "reshape",
    )
    assert str(program.types[turned.results[0]]) == "f32[4,2,3]"


def test_operands_are_spread_to_the_result_as_lowering_does() -> None:
    program = traced(lambda x: jnp.clip(x, 0.0, 1.0) + 2.0, SQUARE)
    for operation in program.body.operations:
        if operation.opcode in ("maximum", "minimum", "add", "clamp"):
            assert {program.types[value].shape for value in operation.operands} == {(32, 32)}


def test_branches_are_bodies_with_what_they_take_from_outside() -> None:
    program = traced(
        lambda i, x: lax.switch(i, [jnp.tanh, lambda y: y @ y], x), Shape((), jnp.int32), SQUARE
    )
    branch = next(operation for operation in program.body.operations if operation.opcode == "case")
    assert [[inner.opcode for inner in body.operations] for body in branch.bodies] == [
        ["tanh"],
        ["dot_general"],
    ]
    assert branch.bodies[1].operations[0].operands == (program.body.parameters[1],) * 2
