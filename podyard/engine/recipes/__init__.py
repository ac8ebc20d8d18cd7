"""The recipes that the engine can train, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.recipe import Recipe

# module and factory; imported when asked for, so that one recipe's needs are not every process's needs.
_FACTORIES: Mapping[str, tuple[str, str]] = {
    "digits-cnn": ("podyard.engine.recipes.digits_cnn", "DigitsCnn.from_arguments"),
}


def build_recipe(name: str, arguments: Mapping[str, object]) -> Recipe:
    """The recipe with `arguments` (complete, as checked at submit). Raises PodyardError NOT_FOUND for another name."""
    if name not in _FACTORIES:
        known = ", ".join(sorted(_FACTORIES))
        raise PodyardError(Code.NOT_FOUND, f"the engine has no recipe {name!r}; it has {known}")
    module_name, path = _FACTORIES[name]
    target: object = importlib.import_module(module_name)
    for attribute in path.split("."):
        target = getattr(target, attribute)
    return cast(Callable[[Mapping[str, object]], Recipe], target)(arguments)
