"""The engine: systolic numerics, collectives, training, recipes, modelled time. No database, no
HTTP.

Importing this package imports no JAX: the names below are loaded when they are first asked for, so
that the parts that price programs stay cheap to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podyard.engine.analysis import analyze as analyze
    from podyard.engine.analysis import analyze_stablehlo as analyze_stablehlo
    from podyard.engine.numerics.transform import mxu_jit as mxu_jit
    from podyard.engine.timing.collectives import AllReducePlan as AllReducePlan
    from podyard.engine.timing.collectives import all_reduce_plan as all_reduce_plan
    from podyard.engine.timing.estimate import Estimate as Estimate
    from podyard.engine.timing.systolic import systolic_cycles as systolic_cycles

__all__ = [
    "AllReducePlan",
    "Estimate",
    "all_reduce_plan",
    "analyze",
    "analyze_stablehlo",
    "mxu_jit",
    "systolic_cycles",
]

_HOMES = {
    "AllReducePlan": "podyard.engine.timing.collectives",
    "Estimate": "podyard.engine.timing.estimate",
    "all_reduce_plan": "podyard.engine.timing.collectives",
    "analyze": "podyard.engine.analysis",
    "analyze_stablehlo": "podyard.engine.analysis",
    "mxu_jit": "podyard.engine.numerics.transform",
    "systolic_cycles": "podyard.engine.timing.systolic",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
