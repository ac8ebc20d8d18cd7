"""Into how many parts a core's batch is cut, so that what a part computes with stays in the
processor's cache."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.ir import walk
from podyard.engine.training.programs import Layouts
from podyard.engine.training.recipe import Batch, Trainable, Tree

# The largest array of a part's forward pass. Measured on the Fashion-MNIST model, 125 examples a
# core: 21 MB at once 1,400 images a second, 4.3 MB 5,400; below 2 MB nothing is gained.
LARGEST_ARRAY_BYTES = 6 * 2**20


def parts_of(model: Trainable, layouts: Layouts, batch: Batch) -> int:
    """Parts of `batch`, which is one core's: the fewest equal ones whose largest array is below the
    limit; all examples one by one if none is. One for models that keep statistics of their batches,
    which parts would change.

    A function of the model and the batch's size alone, because the order of sums and the draws of
    dropout follow it.
    """
    count = len(next(iter(batch.values())))
    if layouts.statistics.length or count == 1:
        return 1
    wanted = math.ceil(_largest_array_bytes(model, layouts, batch) / LARGEST_ARRAY_BYTES)
    return next(
        parts
        for parts in range(1, count + 1)
        if count % parts == 0 and (parts >= wanted or parts == count)
    )


def _largest_array_bytes(model: Trainable, layouts: Layouts, batch: Batch) -> int:
    params = layouts.params.unflatten(np.zeros(layouts.params.length, np.float32))
    key = jax.random.key(0, impl="threefry2x32")
    statistics = layouts.statistics.unflatten(np.zeros(0, np.float32))

    def loss(params: Tree, batch: Batch) -> Any:
        return model.loss(params, statistics, batch, key)[0]

    program = program_of_jaxpr(jax.make_jaxpr(loss)(params, dict(batch)))
    made = (value for operation in walk(program.body) for value in operation.results)
    return max((program.types[value].nbytes for value in made), default=0)
