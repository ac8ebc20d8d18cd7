"""TPU generations by name, each from a module of this package, or from a file that
`PODYARD_GENERATIONS` names.

A file of a further generation is a module like those of this package. docs/checklists/generation.md
lists the rest.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import runpy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from podyard.base.errors import failed_precondition, invalid
from podyard.hardware.cost_model import CostModel
from podyard.hardware.generation import Generation

# paths, separated as in PATH. Not among the settings, which the engine may not see.
VARIABLE = "PODYARD_GENERATIONS"


def _load() -> Iterator[Generation]:
    for name in sorted((module.name for module in pkgutil.iter_modules(__path__)), key=_age):
        yield importlib.import_module(f"{__name__}.{name}").GENERATION
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        yield _of_file(Path(text))


def _age(name: str) -> tuple[int, str]:
    """Return by what names are put in order: their number first, since the letters before it have
    changed."""
    return int("".join(filter(str.isdigit, name))), name


def _of_file(path: Path) -> Generation:
    try:
        generation = runpy.run_path(str(path)).get("GENERATION")
    except Exception as error:  # whatever a user's module raises
        raise failed_precondition(
            f"{VARIABLE}: cannot load {path}: {error or type(error).__name__}"
        ) from error
    if not isinstance(generation, Generation):
        raise failed_precondition(f"{VARIABLE}: {path} must set GENERATION to a Generation")
    return generation


def _by_name(generations: Iterable[Generation]) -> Mapping[str, Generation]:
    found: dict[str, Generation] = {}
    for generation in generations:
        if generation.name in found:
            raise failed_precondition(
                f"{VARIABLE}: generation {generation.name} exists already: use another name"
            )
        found[generation.name] = generation
    return found


GENERATIONS: Mapping[str, Generation] = _by_name(_load())

BY_WIRE_TYPE: Mapping[str, Generation] = {
    g.wire_type: g for g in GENERATIONS.values() if g.wire_type is not None
}


def cost_model(generation: str) -> CostModel:
    """Raises PodyardError INVALID_ARGUMENT for a generation that is not modelled."""
    costs = GENERATIONS[generation].costs if generation in GENERATIONS else None
    if costs is None:
        known = ", ".join(item.name for item in GENERATIONS.values() if item.costs is not None)
        raise invalid(f"no timing model for {generation!r}; there are: {known}", "accelerator_type")
    return costs
