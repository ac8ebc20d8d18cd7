"""`engine.analyze(..., compiler="xla-tpu")`: what of an estimate is the real compiler's, and that
nothing misleads.

The compiler's verdict is put in by hand where only the telling is tried; what needs the compiler
skips without it.
"""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine import analysis
from podyard.engine.exact import client
from podyard.engine.exact.client import ExactVerdict
from podyard.engine.exact.hlo import ExactCollective, ExactOp

_GRADIENTS = "(f32[256,512]{1,0:T(8,128)}, f32[512,128]{1,0:T(8,128)})"
_NO_ROOM = (
    "Ran out of memory on HBM, the total memory required for HLO temporaries "
    "(8.5G) exceeds "
    "available HBM (7.48G)"
)


def _weights() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    return {"a": struct((256, 512), jnp.float32), "b": struct((512, 128), jnp.float32)}


def _batch(size: int) -> Any:
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    return struct((size, 256), jnp.float32)


def _step(weights: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    gradient = jax.grad(lambda own: jnp.mean((jnp.tanh(x @ own["a"]) @ own["b"]) ** 2))(weights)
    return jax.tree.map(lambda weight, change: weight - 0.1 * change, weights, gradient)


def _verdict(**changes: Any) -> ExactVerdict:
    collective = ExactCollective(
        name="all-reduce.1", kind="all-reduce", shape=_GRADIENTS, count=1, emitter="",
        rings="{4 2},{4 2}", debug="",
        group_size=8, nbytes=64, strategy="UniDirectionNDRingStrategy", colors=4, phases=2,
    )  # fmt: skip
    ops = (
        ExactOp("fusion.1", "fusion", "f32[8]", 1000, 3, "dot.5"),
        ExactOp("all-reduce.1", "all-reduce", _GRADIENTS, None, 1, "sum"),
    )
    given: dict[str, Any] = {
        "accelerator_type": "v3-8", "partitions": 8, "compiler_version": "fake",
        "out_of_memory_text": "",
        "cycles": 3000, "ops": ops, "collectives": (collective,), "argument_bytes": 400,
        "output_bytes": 300,
        "temporary_bytes": 200, "alias_bytes": 100, "peak_bytes": 750,
    }  # fmt: skip
    return ExactVerdict(**{**given, **changes})


class _Asked:
    """Stands for the compiler: remembers what it was asked, answers `verdict`."""

    def __init__(self) -> None:
        self.verdict = _verdict()
        self.questions: list[tuple[str, str, int]] = []

    def __call__(self, text: str, accelerator_type: str, partitions: int = 1) -> ExactVerdict:
        self.questions.append((text, accelerator_type, partitions))
        return self.verdict


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Asked]:
    pytest.importorskip("jax")
    analysis._kept.clear()
    compiler = _Asked()
    monkeypatch.setattr(client, "compile_exact", compiler)
    yield compiler
    analysis._kept.clear()


def _exact(size: int = 1024, global_batch: int | None = 1024) -> Any:
    return analysis.analyze(
        _step,
        _weights(),
        _batch(size),
        accelerator_type="v3-8",
        global_batch=global_batch,
        compiler="xla-tpu",
    )


def test_cycles_memory_operations_and_collectives_are_the_compilers(asked: _Asked) -> None:
    found = _exact()
    assert (found.compiler, found.cycles, found.fits, found.memory_text) == (
        "xla-tpu",
        3000.0,
        True,
        "",
    )
    assert (found.argument_bytes, found.result_bytes, found.temporary_bytes) == (400, 300, 200)
    assert found.peak_hbm_bytes == 750  # the compiler's own: parts may share memory
    assert [
        (op.name, op.cycles, op.count, op.start_cycles, op.bound, op.where) for op in found.ops
    ] == [
        ("fusion.1", 3000.0, 3, 0.0, "unpriced", "dot.5"),
        ("all-reduce.1", 0.0, 1, 3000.0, "ici", "sum"),
    ]
    (collective,) = found.collectives
    assert collective.startswith(
        "all-reduce (f32[256,512], f32[512,128]) x 1 in groups of 8: UniDirectionNDRingStrat"
    )
    assert collective.endswith("Strategy, 4 colours x 2 phases, {4 2},{4 2}")


def test_nothing_of_the_model_stays_that_would_mislead(asked: _Asked) -> None:
    modelled = analysis.analyze(
        _step, _weights(), _batch(1024), accelerator_type="v3-8", global_batch=1024
    )
    found = _exact()
    assert modelled.largest_buffers and not found.largest_buffers
    assert found.compute_seconds == pytest.approx(3000 / found.clock_hz)
    assert found.modelled_seconds == pytest.approx(
        found.compute_seconds + found.collective_seconds + found.overhead_seconds
    )
    assert found.collective_seconds == modelled.collective_seconds > 0
    busy = modelled.mxu_utilization * modelled.modelled_seconds
    assert found.mxu_utilization * found.modelled_seconds == pytest.approx(busy)
    assert found.flops == modelled.flops


def test_where_the_compiler_sends_nothing_no_time_for_it_is_left(asked: _Asked) -> None:
    asked.verdict = _verdict(collectives=())
    found = _exact()
    assert (found.collective_seconds, found.ici_bytes, found.collectives) == (0.0, 0, ())
    assert found.modelled_seconds == pytest.approx(found.compute_seconds + found.overhead_seconds)


def test_a_program_that_does_not_fit_has_the_compilers_words_and_no_step(asked: _Asked) -> None:
    asked.verdict = _verdict(out_of_memory_text=_NO_ROOM, cycles=0, ops=(), collectives=())
    found = _exact()
    assert (found.fits, found.memory_text, found.peak_hbm_bytes) == (
        False,
        _NO_ROOM,
        int(8.5 * 2**30),
    )
    assert (
        found.modelled_seconds,
        found.compute_seconds,
        found.collective_seconds,
        found.cycles,
    ) == (0, 0, 0, 0)
    assert (found.argument_bytes, found.result_bytes, found.temporary_bytes) == (0, 0, 0)
    assert (found.ops, found.collectives, found.largest_buffers, found.energy_joules) == (
        (),
        (),
        (),
        None,
    )


def test_a_global_batch_is_compiled_for_all_devices_with_only_the_batch_split(
    asked: _Asked,
) -> None:
    _exact()
    ((text, accelerator_type, partitions),) = asked.questions
    assert (accelerator_type, partitions) == ("v3-8", 8)
    (signature,) = (line for line in text.splitlines() if "@main" in line)
    split = [
        part.split(" {")[0]
        for part in signature.split("%arg")
        if '[{"devices"}' in part or "[8,1]" in part
    ]
    assert split == ["2: tensor<1024x256xf32>"]


@pytest.mark.parametrize("size", [128, 1024])
def test_without_a_global_batch_the_program_is_one_devices(asked: _Asked, size: int) -> None:
    _exact(size, None)
    ((text, _, partitions),) = asked.questions
    assert partitions == 1
    assert f"tensor<{size}x256xf32>" in text and '[{"devices"}' not in text


def test_asking_again_compiles_once_and_the_model_is_kept_apart(asked: _Asked) -> None:
    assert _exact() is _exact()
    assert len(asked.questions) == 1
    modelled = analysis.analyze(
        _step, _weights(), _batch(1024), accelerator_type="v3-8", global_batch=1024
    )
    assert (modelled.compiler, len(asked.questions)) == ("podyard", 1)


def test_text_goes_to_the_compiler_as_it_is(asked: _Asked) -> None:
    text = client.lower_for_tpu(_step, _weights(), _batch(64))
    assert analysis.analyze_stablehlo(text, "v2-8", compiler="xla-tpu").cycles == 3000.0
    assert asked.questions == [(text, "v2-8", 1)]


def test_a_compiler_that_there_is_not_is_refused() -> None:
    pytest.importorskip("jax")
    with pytest.raises(PodyardError, match="'gcc' is not one of podyard, xla-tpu") as caught:
        analysis.analyze(_step, _weights(), _batch(64), compiler="gcc")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_without_libtpu_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    analysis._kept.clear()
    monkeypatch.setattr(client, "is_installed", lambda: False)
    with pytest.raises(PodyardError, match="xla-tpu") as caught:
        _exact()
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.fixture
def real() -> Iterator[None]:
    if not client.is_installed():
        pytest.skip("libtpu is not installed")
    analysis._kept.clear()
    yield
    analysis._kept.clear()


@pytest.mark.usefixtures("real")
def test_the_compilers_own_sums_over_the_slice_appear_for_a_global_batch() -> None:
    found = _exact()
    assert len(found.collectives) == 1
    assert found.collectives[0].startswith(
        "all-reduce (f32[256,512], f32[512,128]) x 1 in groups of 8: UniDirectionNDRingStrategy, 4"
    )
    assert [op.name for op in found.ops if op.bound == "ici"]
    assert found.argument_bytes == (256 * 512 + 512 * 128 + 1024 // 8 * 256) * 4
    alone = _exact(128, None)
    assert (alone.collectives, alone.argument_bytes) == ((), found.argument_bytes)
    assert 0 < alone.cycles <= found.cycles


@pytest.mark.usefixtures("real")
def test_cycles_and_bytes_are_those_of_the_compiler_asked_directly() -> None:
    found = _exact(128, None)
    verdict = client.compile_exact(client.lower_for_tpu(_step, _weights(), _batch(128)), "v3-8")
    assert found.cycles == verdict.cycles > 0
    assert found.temporary_bytes == verdict.temporary_bytes
    assert found.cycles == sum(op.cycles for op in found.ops)


@pytest.mark.usefixtures("real")
def test_the_compilers_words_come_through_for_a_program_that_is_too_large() -> None:
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    wide = struct((57_344, 64), jnp.bfloat16)
    found = analysis.analyze(
        lambda x: jnp.sort(x @ x.T, axis=0)[0], wide, accelerator_type="v2-8", compiler="xla-tpu"
    )
    assert not found.fits
    assert "(18.38G) exceeds available HBM (7.48G)" in found.memory_text
    assert found.peak_hbm_bytes == round(18.38 * 2**30)


def test_the_extra_pins_the_compiler_that_the_installed_jax_pins() -> None:
    requirements = importlib.metadata.requires("jax") or []
    pinned = {text.split(";")[0].strip() for text in requirements if text.startswith("libtpu")}
    project = tomllib.loads(
        (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    )
    extra = project["project"]["optional-dependencies"]["xla-tpu"]
    assert pinned == {text for text in extra if text.startswith("libtpu")}
