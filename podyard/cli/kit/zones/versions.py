"""The runtime version of a node that names none: the usual one of its generation."""

from __future__ import annotations

from podyard.base.errors import PodyardError
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generation import Generation
from podyard.hardware.generations import GENERATIONS


def usual_version(accelerator_type: str | None, generation: str | None = None) -> str:
    """Return the usual version of a type or, without one, of a generation; empty where neither is
    known, which the API refuses."""
    try:
        kind = parse(accelerator_type).generation if accelerator_type else None
    except PodyardError:
        kind = None
    kind = kind or generation_named(generation)
    return "" if kind is None else kind.runtime_version_default


def generation_named(text: str | None) -> Generation | None:
    plain = (text or "").lower().replace("-", "")
    named = (one for one in GENERATIONS.values() if plain in (one.name, one.name_prefix))
    return next(named, None)
