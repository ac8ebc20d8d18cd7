"""The models that the engine can train, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from podyard.engine.recipes.programs import model_of

if TYPE_CHECKING:
    from podyard.engine.training.recipe import Trainable


def build_recipe(name: str, arguments: Mapping[str, object]) -> Trainable:
    """The model with `arguments`; those not given have their defaults.

    Raises PodyardError INVALID_ARGUMENT for another name or for arguments that the model does not
    have. A model that is only a program for estimates says so when it is asked for its data.
    """
    return model_of(name, arguments)
