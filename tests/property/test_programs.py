"""Whatever is done to the text of a module, it is priced or refused in words; nothing else is
raised, nothing hangs."""

from __future__ import annotations

import functools
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from podyard.base.errors import Code, PodyardError
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.serialized import text_of_bytes
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse
from tests.unit.engine.compiled import cases

REFUSALS = (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)
# Programs of the data set that are read many times over are short ones.
LONGEST = 12_000
SECONDS = 10
PIECES = re.compile(r'"[^"]*"|[%@#!^]?[\w.]+|\s+|.', re.DOTALL)
PUT_IN = tuple(
    re.findall(
        r"\S+",
        """
    [ ] { } ( ) < > , : = -> x 0 1 -1 1.5 99999999 999999999999999999 true %arg0 %0 %0#1 @main "text" #alias loc dims
    tensor<f32> tensor<0x4xf32> tensor<8x8xf64> tensor<?xf32> tensor<8xcomplex<f32>> !stablehlo.token dense<0> cond do
    dense<[[1],[2,3]]> array<i64:1,2> stablehlo.while stablehlo.return stablehlo.add "stablehlo.reduce" call chlo.top_k
    "stablehlo.sort" "stablehlo.case" stablehlo.convolution stablehlo.dot stablehlo.pad stablehlo.slice
    "stablehlo.all_reduce" "stablehlo.gather" "stablehlo.scatter" "stablehlo.select_and_scatter" sdy.manual_computation
    stablehlo.dynamic_update_slice
""",  # noqa: E501
    )
)


def steps(w: Any, x: Any, key: Any) -> Any:
    """Return what one module can hold: loops, branches, windows, sorting, random bits, convolutions
    with their gradients."""

    def loss(w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        y, rows = lax.scan(lambda c, row: (c * row.mean(), c), y, x)
        return (y * rows.sum(0) * jax.random.normal(key, y.shape)).sum()

    total = lax.cond(x.sum() > 0, loss, lambda w: w[0, 0].sum(), w)
    return (
        total,
        jax.grad(loss)(w),
        lax.top_k(x[0, 0], 3),
        lax.while_loop(lambda n: n < 9, lambda n: n + 2, 0),
    )


@functools.cache
def modules() -> tuple[str, ...]:
    mesh = jax.sharding.AbstractMesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    named: Any = jax.sharding.NamedSharding
    split: Any = jax.sharding.PartitionSpec
    shape: Any = jax.ShapeDtypeStruct
    key = jax.eval_shape(lambda: jax.random.key(0))
    arguments = (
        shape((3, 3, 4, 4), jnp.float32, sharding=named(mesh, split())),
        shape((8, 8, 8, 4), jnp.float32, sharding=named(mesh, split("rows"))),
        key,
    )
    lowered = jax.jit(steps).trace(*arguments).lower(lowering_platforms=("tpu",))
    whole: Any = lowered.compiler_ir("stablehlo")
    texts = [lowered.as_text(), lowered.as_text(debug_info=True)]
    texts.append(whole.operation.get_asm(print_generic_op_form=True))
    short = sorted(
        {case.text for case in cases() if len(case.text) < LONGEST},
        key=lambda text: (len(text), text),
    )
    return (*texts, *short[:: max(1, len(short) // 30)])


def read(text: str, accelerator_type: str = "v3-1024") -> PodyardError | None:
    """None where the module was priced. Any other exception than a refusal leaves this function."""
    started = time.process_time()
    try:
        estimate = estimate_program(parse_stablehlo(text), parse(accelerator_type))
    except PodyardError as refusal:
        assert refusal.code in REFUSALS
        assert re.search(r"line \d+|devices", refusal.message)
        return refusal
    finally:
        assert time.process_time() - started < SECONDS
    assert estimate.modelled_seconds > 0
    assert estimate.cycles >= 0
    return None


texts = st.integers(0, 10_000).map(lambda index: modules()[index % len(modules())])
edits = st.lists(
    st.tuples(
        st.sampled_from(("drop", "double", "swap", "put", "number", "line")),
        st.randoms(use_true_random=False),
    ),
    min_size=1,
    max_size=4,
)


def edited(text: str, changes: list[tuple[str, Any]]) -> str:
    for kind, chance in changes:
        if kind == "line":
            lines = text.split("\n")
            lines.insert(chance.randrange(len(lines)), lines.pop(chance.randrange(len(lines))))
            text = "\n".join(lines)
            continue
        pieces: list[str] = PIECES.findall(text)
        places = [
            at
            for at, piece in enumerate(pieces)
            if piece.isdigit() or (kind != "number" and piece.strip())
        ]
        if not places:
            return text
        at, other = chance.choice(places), chance.choice(places)
        if kind == "drop":
            del pieces[at]
        elif kind == "double":
            pieces.insert(at, pieces[at])
        elif kind == "swap":
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] = (
                chance.choice(PUT_IN)
                if kind == "put"
                else str(chance.choice((0, 1, 3, 100, 10**12)))
            )
        text = "".join(pieces)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("accelerator_type", ["v3-1024", "v5p-1024"])
def test_modules_are_priced_before_anything_is_done_to_them(accelerator_type: str) -> None:
    assert {read(text, accelerator_type) for text in modules()} == {None}


@settings(max_examples=400)
@given(texts, edits, st.sampled_from(("v3-1024", "v5p-1024")))
@pytest.mark.slow
def test_edited_modules_are_priced_or_refused(
    text: str, changes: list[tuple[str, Any]], accelerator_type: str
) -> None:
    read(edited(text, changes), accelerator_type)


@pytest.mark.slow
def test_truncated_modules_are_refused() -> None:
    for text, step in zip(modules()[:4], (199, 997, 997, 199), strict=True):
        for length in range(0, text.rindex("}"), step):
            assert read(text[:length]) is not None


@given(st.text(max_size=200), texts, st.integers(0, 10_000))
@pytest.mark.slow
def test_any_characters_in_a_module_are_read_or_refused(
    garbage: str, text: str, place: int
) -> None:
    at = place % len(text)
    read(text[:at] + garbage + text[at:])


@settings(max_examples=60)
@given(st.binary(max_size=400))
def test_any_bytes_are_no_program_or_text(data: bytes) -> None:
    try:
        text = text_of_bytes(data)
    except PodyardError as refusal:
        assert refusal.code is Code.INVALID_ARGUMENT
    else:
        assert read(text) is not None


@pytest.mark.slow
@given(
    st.integers(1, 200),
    st.sampled_from(
        (("[", "]"), ("(", ")"), ("{a = ", "}"), ("dense<", ">"), ("#stablehlo.x<a = ", ">"))
    ),
)
def test_nesting_is_read_to_a_depth_and_refused_below(depth: int, marks: tuple[str, str]) -> None:
    nested = f"{{a = {marks[0] * depth}1{marks[1] * depth}}}"
    text = (
        "module @m {\nfunc.func public @main(%a: tensor<f32>) -> tensor<f32> {\n"
        f"%0 = stablehlo.custom_call @f(%a) {nested} : (tensor<f32>) -> tensor<f32>\n"
        "return %0 : tensor<f32>\n}\n}"
    )
    refusal = read(text)
    if depth <= 40 or depth > 100:
        assert (refusal is not None) == (depth > 100)
