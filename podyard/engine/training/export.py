"""A trained model to take away: its answers as a program, its tensors, and a manifest that makes
both count.

The program is what `programs.predict` compiles, in JAX's portable format, for CPUs, TPUs and GPUs
(cuda), and for batches of any size. Where it cannot be traced for a size that is not a number,
because the model counts in Python by it, it is for the size of the example;
`podyard.engine.exported` fills batches up to that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jax import export
from jax.interpreters import partial_eval

from podyard.base.errors import failed_precondition, invalid
from podyard.engine.exported import FORMAT, MANIFEST, MODEL, PARAMS, PROGRAM, STATISTICS, feature_of
from podyard.engine.numerics.transform import mxu_numerics
from podyard.engine.training.programs import Layouts, TrainState
from podyard.engine.training.recipe import Batch, Trainable
from podyard.engine.training.store import CheckpointStore
from podyard.engine.training.xla import compiler_options

PREFIX = "export/"
PLATFORMS = ("cpu", "tpu", "cuda")


def write(
    store: CheckpointStore,
    model: Trainable,
    layouts: Layouts,
    state: TrainState,
    example: Batch,
    about: Mapping[str, object],
) -> list[str]:
    """The names written, the manifest last: without one that fits, there is no export.

    `example`: a batch as `model.predict` takes it; its numbers do not matter. `about`: what else
    the manifest says (recipe, arguments, seed), as JSON.
    Raises PodyardError FAILED_PRECONDITION for a model whose answers read no feature,
    INVALID_ARGUMENT where they are not one array with an answer per example; also what
    `model.predict`, its tracing and the store raise.
    """
    params = layouts.params.by_name(np.asarray(state.params))
    statistics = layouts.statistics.by_name(np.asarray(state.statistics))
    features = {name: jnp.asarray(value) for name, value in example.items()}
    answers = _Answers(model, layouts, state, features)
    read = answers.read_features(params, statistics)
    program = _program_of(answers, params, statistics, {name: features[name] for name in read})
    size = program.in_avals[-1].shape[0]
    tensors = {PARAMS + name: value for name, value in params.items()}
    tensors |= {STATISTICS + name: value for name, value in statistics.items()}
    files = {MODEL: safetensors.numpy.save(tensors), PROGRAM: bytes(program.serialize())}
    manifest = {
        **about,
        "format": FORMAT,
        "step": state.step,
        "inputs": {name: feature_of(features[name]).describe() for name in read},
        "outputs": feature_of(program.out_avals[0]).describe(),
        "batch": size if isinstance(size, int) else None,
        "parameters": {name: list(value.shape) for name, value in params.items()},
        "statistics": {name: list(value.shape) for name, value in statistics.items()},
        "platforms": list(program.platforms),
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in files.items()
        },
        "jax": jax.__version__,
        "callingConvention": program.calling_convention_version,
        "compilerOptions": compiler_options(),
    }
    for name, data in files.items():
        store.put(PREFIX + name, data)
    store.put(PREFIX + MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return [PREFIX + name for name in (*files, MANIFEST)]


class _Answers:
    """f(parameters, statistics, batch) -> answers, all by name: trees of a model's own types do not
    travel."""

    def __init__(
        self, model: Trainable, layouts: Layouts, state: TrainState, features: Batch
    ) -> None:
        self._predict = model.predict
        self._features = features
        self._trees = [
            (list(layout.by_name(vector)), jax.tree.structure(layout.unflatten(vector)))
            for layout, vector in (
                (layouts.params, state.params),
                (layouts.statistics, state.statistics),
            )
        ]

    def __call__(
        self, params: Mapping[str, Any], statistics: Mapping[str, Any], batch: Batch
    ) -> Any:
        count = next(iter(batch.values())).shape[0]
        # A model may touch what its answers do not depend on.
        others = {
            name: jnp.zeros((count, *value.shape[1:]), value.dtype)
            for name, value in self._features.items()
            if name not in batch
        }
        params_tree, statistics_tree = (
            jax.tree.unflatten(structure, [named[name] for name in names])
            for (names, structure), named in zip(self._trees, (params, statistics), strict=True)
        )
        return self._predict(params_tree, statistics_tree, {**others, **batch})

    def read_features(self, params: Mapping[str, Any], statistics: Mapping[str, Any]) -> list[str]:
        """The features that answers are computed from, sorted."""
        closed = jax.make_jaxpr(self)(params, statistics, self._features)
        if len(closed.out_avals) != 1:
            raise invalid(
                f"predict gives {len(closed.out_avals)} arrays; an export has one, with an "
                "answer per example"
            )
        _, is_read = partial_eval.dce_jaxpr(closed.jaxpr, [True])
        of_features = is_read[len(params) + len(statistics) :]
        read = [
            name for name, used in zip(sorted(self._features), of_features, strict=True) if used
        ]
        if not read:
            raise failed_precondition(
                "the answers of this model depend on no feature: there is nothing to ask it"
            )
        return read


def _program_of(
    answers: _Answers, params: Any, statistics: Any, features: Batch
) -> export.Exported:
    """For batches of any size if it can be, else of the size of `features`."""
    run = export.export(jax.jit(mxu_numerics(answers)), platforms=PLATFORMS)
    (any_size,) = export.symbolic_shape("examples")
    try:
        program = run(params, statistics, _abstract(features, any_size))
    except Exception:  # what a model makes of a size that is not a number is any exception
        program = run(params, statistics, features)
    size, answered = program.in_avals[-1].shape[0], program.out_avals[0].shape
    if not answered or answered[0] != size:
        raise invalid(
            f"predict gives {list(answered)} for {size} examples; an export has one array, an "
            "answer per example"
        )
    return program


def _abstract(features: Batch, size: Any) -> Batch:
    struct: Any = jax.ShapeDtypeStruct
    return {name: struct((size, *value.shape[1:]), value.dtype) for name, value in features.items()}
