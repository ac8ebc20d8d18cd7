from __future__ import annotations

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.domain.recipes import RECIPES, check_arguments, check_batch, check_mode
from podyard.engine.executor import MODES
from podyard.engine.recipes import build_recipe
from podyard.engine.recipes.programs import PROGRAMS

# A job trains for minutes on data that is on hand, an estimate is of the published run.
JOB_DEFAULTS = {
    "resnet-50": {"variant": "v1", "warmUpEpochs": 0, "data": "sklearn-digits"},
    "transformer-lm": {"data": "sklearn-texts"},
}


def refusal(recipe: str, **arguments: object) -> str:
    with pytest.raises(PodyardError) as caught:
        check_arguments(recipe, arguments)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def test_defaults_fill_what_is_not_given() -> None:
    assert check_arguments("digits-cnn", {}) == {"learningRate": 1e-3, "dropout": 0.25}
    checked = check_arguments("digits-cnn", {"dropout": 0})
    assert checked["dropout"] == 0.0 and isinstance(checked["dropout"], float)


def test_refusals_name_what_is_wrong_and_what_is_known() -> None:
    assert refusal("mnist") == f"unknown recipe 'mnist': use {', '.join(sorted(RECIPES))}"
    assert "unknown argument 'rate'" in refusal("digits-cnn", rate=1)
    assert "learningRate, dropout" in refusal("digits-cnn", rate=1)
    for value in ("0.1", None, True, [1]):
        assert "must be a number" in refusal("digits-cnn", dropout=value)
    for number in (-0.1, 1, float("nan"), float("inf")):
        assert "between 0.0 and 0.9" in refusal("digits-cnn", dropout=number)


def test_choices_and_flags_name_what_is_allowed() -> None:
    checked = check_arguments("transformer-lm", {"scan": True, "dtype": "float32"})
    assert (checked["scan"], checked["remat"], checked["dtype"]) == (True, False, "float32")
    assert "scan" not in check_arguments("transformer-lm", {})  # the recipe decides it
    assert refusal("resnet-50", variant="v2") == "arguments.variant must be v1 or v1.5, got 'v2'"
    for value in ("yes", 1, None):
        assert "remat must be true or false" in refusal("transformer-lm", remat=value)


@pytest.mark.parametrize(
    "folder", ["", "/etc", "../x", "a/../b", ".hidden", "a//b", "a/", 5, None, "a b", "a\n"]
)
def test_data_is_a_folder_below_the_data_sets(folder: object) -> None:
    assert check_arguments("mnist-cnn", {"data": "vision/mnist-1.0"})["data"] == "vision/mnist-1.0"
    assert refusal("mnist-cnn", data=folder).startswith(
        ("arguments.data must be a folder", "arguments.data is required")
    )


def test_batch_is_a_positive_multiple_of_the_cores() -> None:
    assert check_batch(128, 32) == 128
    for batch in (0, -8, 100):
        with pytest.raises(PodyardError, match="multiple of the slice's 8 cores"):
            check_batch(batch, 8)
    with pytest.raises(PodyardError, match="more than the 1438 training examples"):
        check_batch(2048, 8, RECIPES["digits-cnn"].training_example_count)


def test_manifest_and_engine_agree() -> None:
    assert set(RECIPES) == set(PROGRAMS)
    for name, manifest in RECIPES.items():
        needs_data = "data" in manifest.arguments and not manifest.arguments["data"].default
        given = {"data": "somewhere"} if needs_data else {}
        recipe = build_recipe(name, check_arguments(name, given))
        if not needs_data:
            count = recipe.input().train.count
            assert manifest.training_example_count in (count, None)
            assert count >= manifest.default_global_batch
        assert set(manifest.modes) <= set(MODES)
        check_batch(manifest.default_global_batch, 8)
        declared = PROGRAMS[name].arguments
        assert {key: argument.default for key, argument in manifest.arguments.items()} == {
            key: argument.default for key, argument in declared.items()
        } | JOB_DEFAULTS.get(name, {})
    with pytest.raises(PodyardError, match=r"unknown program .*: use cifar10-cnn"):
        build_recipe("mnist", {})
    with pytest.raises(PodyardError, match="dropout is a number"):
        build_recipe("digits-cnn", {"dropout": "much"})
    with pytest.raises(PodyardError, match="needs data") as caught:
        build_recipe("mnist-cnn", {}).input()
    assert caught.value.code is Code.FAILED_PRECONDITION
    with pytest.raises(PodyardError, match="use train, evaluate, predict"):
        check_mode("digits-cnn", "serve")
