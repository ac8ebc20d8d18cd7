"""The models and data that a job trains: a recipe of ours, or a program of its user's own; and how
long a step of it would take."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.training_settings import SETS_ON_HAND
from podyard.engine.analysis import analyze
from podyard.engine.contract import ReplicaSpec
from podyard.engine.recipes import build_recipe
from podyard.engine.step.host_input import HOST_INPUT
from podyard.engine.timing.estimate import Estimate
from podyard.engine.training.input.pipeline import Pipeline
from podyard.engine.training.layout import abstract, abstract_tree
from podyard.engine.training.order import DataOrder
from podyard.engine.training.programs import Layouts, whole_step
from podyard.engine.training.recipe import Input, Trainable

_DATA = "data"
_PROGRAM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):([A-Za-z_][A-Za-z0-9_]*)")
_METHODS = ("input", "init", "loss", "evaluate", "predict", "optimizer")


def model_of_job(spec: ReplicaSpec) -> tuple[Trainable, str]:
    """(the model, a digest of its source: "" of our own). Raises PodyardError INVALID_ARGUMENT for
    a recipe or
    arguments that there are not, NOT_FOUND for a program whose file is missing, and
    FAILED_PRECONDITION, which names the line, for one that fails."""
    arguments = _with_data_found(spec)
    if ":" not in spec.recipe:
        return build_recipe(spec.recipe, arguments), ""
    match = _PROGRAM.fullmatch(spec.recipe)
    if match is None or spec.program_folder is None:
        raise invalid(f"{spec.recipe!r} is not a program of this agent: module:function", "program")
    return _load(Path(spec.program_folder, f"{match[1]}.py"), match[2], arguments)


def estimate_of(spec: ReplicaSpec, model: Trainable, layouts: Layouts, data: Input) -> Estimate:
    """Return what a step takes on the slice: the whole batch's program as a user writes it, not as
    it runs here."""
    return analyze(
        functools.partial(whole_step, model),
        *_abstract_arguments(model, layouts, data, spec),
        accelerator_type=spec.accelerator_type,
        global_batch=spec.global_batch,
        infeed=HOST_INPUT,
    )


def _load(path: Path, function: str, arguments: Mapping[str, object]) -> tuple[Trainable, str]:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise _missing(path) from error
    name = f"podyard_program_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    loader = None if specification is None else specification.loader
    assert specification is not None and loader is not None
    module = importlib.util.module_from_spec(specification)
    # A program can import modules from its folder.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    linecache.checkcache(str(path))
    _call(path, lambda: loader.exec_module(module))
    build = getattr(module, function, None)
    if not callable(build):
        raise invalid(f"{path.name} has no function {function}", "program")
    model = _call(path, lambda: build(**arguments))
    lacking = [method for method in _METHODS if not callable(getattr(model, method, None))]
    if lacking:
        raise failed_precondition(
            f"{path.name}: what {function}() gives has no {', '.join(lacking)}"
        )
    return model, hashlib.sha256(source).hexdigest()


def _missing(path: Path) -> PodyardError:
    known = sorted(found.stem for found in path.parent.glob("*.py"))
    there = f"there are: {', '.join(known[:20])}" if known else "there is none"
    return PodyardError(
        Code.NOT_FOUND, f"there is no program {path.stem} in this agent's programs; {there}"
    )


def _call(path: Path, run: Callable[[], Any]) -> Any:
    """Of a user's code. What it raises is told with the last line of that file that was on the
    way."""
    try:
        return run()
    except PodyardError:
        raise
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(path)
        ]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        where = path.name if line is None else f"{path.name}, line {line}"
        raise failed_precondition(f"{where}: {type(error).__name__}: {error}") from error


def _abstract_arguments(
    model: Trainable, layouts: Layouts, data: Input, spec: ReplicaSpec
) -> tuple[Any, Any, Any]:
    """Of the whole batch's step: shapes and types."""
    params = abstract_tree(layouts.params)
    optimizer = model.optimizer(spec.global_batch)
    state = {
        "params": params,
        "opt": jax.eval_shape(optimizer.start, params),
        "step": abstract((), jnp.int32),
    }
    if layouts.statistics.length:
        state["statistics"] = abstract_tree(layouts.statistics)
    order = DataOrder(spec.seed, data.train.count, spec.global_batch)
    pipeline = Pipeline(
        data.train, order, spec.global_batch, spec.core_count, data.train_transforms, spec.seed, 0
    )
    batch = {
        name: abstract((spec.global_batch, *array.shape[1:]), array.dtype)
        for name, array in pipeline.shard(1, 0).items()
    }
    return state, batch, abstract((2,), jnp.uint32)


def _with_data_found(spec: ReplicaSpec) -> dict[str, object]:
    """The arguments, the data's folder as a path. What a checkpoint remembers is the name."""
    data = spec.arguments.get(_DATA)
    if spec.data_folder is None or not isinstance(data, str) or data in SETS_ON_HAND:
        return dict(spec.arguments)
    return {**spec.arguments, _DATA: str(Path(spec.data_folder, data))}
