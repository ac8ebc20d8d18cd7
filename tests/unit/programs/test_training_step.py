"""The rule for the training step."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.training_loop import training_turns
from podyard.programs.step.training_step import ModuleUse, is_library_function, training_step

STEP = ModuleUse("jit_step", 3, 2.0)
EVALUATION = ModuleUse("jit_evaluate", 100, 1.0)
INITIALIZER = ModuleUse("jit_init", 1, 1000.0)
EAGER = ModuleUse("jit_multiply", 10_000, 1.0, is_library=True)


def _name(*uses: ModuleUse, name: str | None = None) -> str | None:
    choice = training_step(uses, name)
    return None if choice is None else uses[choice.index].name


def test_the_largest_time_times_calls_of_what_is_called_again() -> None:
    assert _name(INITIALIZER, EAGER, STEP) == "jit_step"
    assert _name(INITIALIZER, EAGER, STEP, EVALUATION) == "jit_evaluate"
    assert _name(INITIALIZER, EAGER) is None
    assert _name(STEP, ModuleUse("jit_large", 2, None)) == "jit_large"


def test_what_gets_its_own_results_back_goes_first_unless_it_takes_next_to_nothing() -> None:
    step = ModuleUse("jit_step", 3, 2.0, feeds_itself=True)
    assert _name(EVALUATION, step) == "jit_step"
    assert (
        _name(EVALUATION, ModuleUse("jit_next_key", 100, 0.001, feeds_itself=True))
        == "jit_evaluate"
    )


def test_a_training_loop_counts_by_its_turns() -> None:
    assert _name(ModuleUse("jit_train", 1, 2.0, turns=50)) == "jit_train"
    # as often as its state says
    assert _name(ModuleUse("jit_train", 1, 2.0, turns=1)) == "jit_train"


@pytest.mark.parametrize("name", ["init", "jit_init"])
def test_a_name_overrides(name: str) -> None:
    assert _name(STEP, INITIALIZER, EAGER, name=name) == "jit_init"
    assert _name(STEP, name="nothing") is None


def test_functions_of_jax_are_told_from_the_program_s() -> None:
    jax: Any = pytest.importorskip("jax", reason="functions of JAX")

    def step(rate: float, x: Any) -> Any:
        return rate * x

    partial = functools.partial(step, 2.0)
    own = (
        step,
        partial,
        lambda x: x,
        jax.vmap(step),
        jax.grad(partial),
        jax.numpy.dot,
        jax.checkpoint(partial),
    )
    assert [is_library_function(one) for one in own] == [False] * len(own)
    assert is_library_function(jax.random.uniform) and is_library_function(
        jax.numpy.linalg.inv.__wrapped__
    )


LOOP = """module @jit_train {
  func.func public @main(%arg0: tensor<64x64xf32>, %arg1: tensor<8x64xf32>) -> (tensor<64x64xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%i = %c, %w = %arg0, %x = %arg1) : tensor<i32>, tensor<64x64xf32>, tensor<8x64xf32>
    cond {
      %c_0 = stablehlo.constant dense<30> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
      %2 = stablehlo.dot_general %x, %1, contracting_dims = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
      %3 = stablehlo.subtract %w, %2 : tensor<64x64xf32>
      %c_0 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.add %i, %c_0 : tensor<i32>
      stablehlo.return %4, %3, %x : tensor<i32>, tensor<64x64xf32>, tensor<8x64xf32>
    }
    return %0#1 : tensor<64x64xf32>
  }
}
"""  # noqa: E501


def test_the_loop_that_changes_the_arguments_is_the_training_loop() -> None:
    assert training_turns(parse_stablehlo(LOOP)) == 30
    assert (
        training_turns(parse_stablehlo(LOOP.replace("return %4, %3, %x", "return %4, %w, %x"))) == 0
    )
    unknown = LOOP.replace("%i = %c,", "%i = %n,").replace(
        "%arg1: tensor<8x64xf32>)", "%arg1: tensor<8x64xf32>, %n: tensor<i32>)"
    )
    assert training_turns(parse_stablehlo(unknown)) == 1
    zeros = LOOP.replace("%w = %arg0", "%w = %zeros").replace(
        "    %0:3", "    %zeros = stablehlo.constant dense<0.0> : tensor<64x64xf32>\n    %0:3"
    )
    assert training_turns(parse_stablehlo(zeros)) == 0


TRAJECTORY = """module @jit_scan {
  func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<100x2xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %zeros = stablehlo.constant dense<0.0> : tensor<100x2xf32>
    %0:3 = stablehlo.while(%i = %c, %w = %arg0, %all = %zeros) : tensor<i32>, tensor<2xf32>, tensor<100x2xf32>
    cond {
      %c_0 = stablehlo.constant dense<100> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %w, %w : tensor<2xf32>
      %2 = stablehlo.reshape %1 : (tensor<2xf32>) -> tensor<1x2xf32>
      %c_0 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_update_slice %all, %2, %i, %c_0 : (tensor<100x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<100x2xf32>
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.add %i, %c_1 : tensor<i32>
      stablehlo.return %4, %1, %3 : tensor<i32>, tensor<2xf32>, tensor<100x2xf32>
    }
    return %0#1, %0#2 : tensor<2xf32>, tensor<100x2xf32>
  }
}
"""  # noqa: E501


def test_what_a_loop_collects_counts_by_the_turn() -> None:
    assert training_turns(parse_stablehlo(TRAJECTORY)) == 100
    # predictions of each batch are more than the counters that are carried
    large = TRAJECTORY.replace("100x2xf32", "100x64xf32").replace("1x2xf32", "1x64xf32")
    large = large.replace("reshape %1 : (tensor<2xf32>)", "reshape %b : (tensor<64xf32>)")
    large = large.replace(
        "%2 =", "%b = stablehlo.constant dense<0.0> : tensor<64xf32>\n      %2 =", 1
    )
    assert training_turns(parse_stablehlo(large)) == 0
