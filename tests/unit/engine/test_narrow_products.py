"""Products of types of 8 bits, against what the TPU compiler (libtpu 0.0.51) estimates; and chosen
algorithms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard import engine
from podyard.base.errors import Code, PodyardError

# (type, edge): compiled cycles of int8 with int32 results, and of float8_e5m2 with float32 results.
COMPILED = {
    ("v4-8", 2048): (91_222, 97_266),
    ("v4-8", 4096): (633_408, 682_994),
    ("v5litepod-1", 2048): (79_888, 79_888),
    ("v5litepod-1", 4096): (542_476, 542_476),
    ("v5p-8", 2048): (41_894, 41_894),
    ("v5p-8", 4096): (275_123, 275_123),
    ("v6e-1", 2048): (40_010, 40_010),
    ("v6e-1", 4096): (226_614, 226_614),
}


@pytest.mark.parametrize(("kind", "edge"), COMPILED)
def test_cycles_are_the_compilers(kind: str, edge: int) -> None:
    found = []
    for dtype, result in ((jnp.int8, jnp.int32), (jnp.float8_e5m2, jnp.float32)):
        of = jax.ShapeDtypeStruct((edge, edge), dtype)  # type: ignore[no-untyped-call]
        found.append(
            engine.analyze(
                lambda a, b, r=result: lax.dot(a, b, preferred_element_type=r),
                of,
                of,
                accelerator_type=kind,
            )
        )
    for estimate, compiled in zip(found, COMPILED[kind, edge], strict=True):
        assert estimate.cycles == pytest.approx(compiled, rel=0.12)


def test_a_product_with_one_wide_side_has_the_wide_rate() -> None:
    wide, narrow = (jax.ShapeDtypeStruct((2048, 2048), one) for one in (jnp.bfloat16, jnp.int8))  # type: ignore[no-untyped-call]

    def mixed(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    slow = engine.analyze(mixed, wide, narrow, accelerator_type="v5litepod-1")
    plain = engine.analyze(mixed, wide, wide, accelerator_type="v5litepod-1")
    assert slow.cycles == pytest.approx(plain.cycles, rel=0.1)


@pytest.mark.parametrize(
    "name", ["BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "DEFAULT"]
)
def test_an_algorithm_preset_is_taken_by_both_front_ends(name: str) -> None:
    preset = lax.DotAlgorithmPreset[name]
    of = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)  # type: ignore[no-untyped-call]

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b, precision=preset)

    passes = {"BF16_BF16_F32_X3": 3, "BF16_BF16_F32_X6": 6}.get(name, 1)
    found = engine.analyze(product, of, of, accelerator_type="v3-8")
    text = jax.jit(product).trace(of, of).lower(lowering_platforms=("tpu",)).as_text()
    assert engine.analyze_stablehlo(text, "v3-8").cycles == found.cycles
    precision = {1: "default", 3: "high", 6: "highest"}[passes]
    usual = engine.analyze(
        lambda a, b: jnp.dot(a, b, precision=precision), of, of, accelerator_type="v3-8"
    )
    assert found.cycles == usual.cycles


@pytest.mark.parametrize("name", ["F32_F32_F32", "TF32_TF32_F32_X3", "BF16_BF16_F32_X9"])
def test_an_algorithm_that_tpus_do_not_have_is_refused(name: str) -> None:
    """With the name, as the TPU compiler does: "Dot algorithm ALG_DOT_F32_F32_F32 is not
    supported"."""
    preset = lax.DotAlgorithmPreset[name]
    of = jax.ShapeDtypeStruct((64, 64), jnp.float32)  # type: ignore[no-untyped-call]

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b, precision=preset)

    with pytest.raises(PodyardError, match=f"the dot algorithm {name} ") as raised:
        engine.analyze(product, of, of, accelerator_type="v3-8")
    assert raised.value.code is Code.UNIMPLEMENTED
    text = jax.jit(product).trace(of, of).lower(lowering_platforms=("tpu",)).as_text()
    with pytest.raises(PodyardError, match=f"the dot algorithm {name} "):
        engine.analyze_stablehlo(text, "v3-8")


def test_an_algorithm_can_be_spelt_out() -> None:
    given = lax.DotAlgorithm(jnp.bfloat16, jnp.bfloat16, jnp.float32, num_primitive_operations=3)
    of = jax.ShapeDtypeStruct((512, 512), jnp.float32)  # type: ignore[no-untyped-call]
    found, usual = (
        engine.analyze(
            lambda a, b, p=p: lax.dot(a, b, precision=p), of, of, accelerator_type="v3-8"
        )
        for p in (given, "high")
    )
    assert found.cycles == usual.cycles


def test_a_product_of_many_numbers_is_the_first_kernel_of_a_module() -> None:
    """Attention of one query and one key, as models are initialized: nothing precedes it."""
    of = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, 4, 1, 1), (1, 1, 4, 32))]  # type: ignore[no-untyped-call]
    estimate = engine.analyze(
        lambda a, b: jnp.einsum("...hqk,...khd->...qhd", a, b), *of, accelerator_type="v5litepod-1"
    )
    assert estimate.flops == 2 * 4 * 32 and 0 < estimate.device_seconds < 20e-6
