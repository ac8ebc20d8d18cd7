"""Pictures of a TPU for notebooks, such as `lesson.chips("v2", "v3")`. The console shows the same
ones.

Each function returns an object that a notebook draws (`_repr_html_`). None needs IPython, JAX or a
running Podyard.
"""

from __future__ import annotations

from podyard.engine.collectives import explain as reduce
from podyard.engine.collectives import explain_html as reduce_html
from podyard.engine.lesson.chips import chips as chips
from podyard.engine.lesson.chips import sources as sources
from podyard.engine.lesson.devices import device as device
from podyard.engine.lesson.digits import digits as digits
from podyard.engine.lesson.digits import products
from podyard.engine.lesson.first_tpu import edge_tpu as edge_tpu
from podyard.engine.lesson.first_tpu import first_tpu as first_tpu
from podyard.engine.lesson.picture import Picture
from podyard.engine.numerics import explain_html as mxu_html
from podyard.engine.numerics.explain import decimal_operands
from podyard.engine.numerics.explain import explain as trace_of
from podyard.engine.timing.systolic import Dataflow

__all__ = [
    "Picture",
    "all_reduce",
    "chips",
    "device",
    "digits",
    "edge_tpu",
    "first_tpu",
    "mxu",
    "product",
    "sources",
]


def mxu(  # noqa: PLR0913
    m: int = 4, k: int = 4, n: int = 4, *, cycle: int = 0, rows: int = 4, cols: int = 4,
    dataflow: Dataflow = "ws", seed: int = 0, decimals: bool = False,
) -> Picture:  # fmt: skip
    """A matrix unit at `cycle` of [m, k] x [k, n]. `decimals`: operands that bfloat16 has to round.

    Raises PodyardError INVALID_ARGUMENT for sizes that cannot be shown.
    """
    trace = trace_of(
        m, k, n, rows, cols, dataflow, seed, decimal_operands(m, k, n, seed) if decimals else None
    )
    return Picture(trace.title, mxu_html.figure(trace, cycle), (mxu_html.PACKAGE,))


def product(m: int = 4, k: int = 4, n: int = 4, *, seed: int = 0) -> Picture:
    """The digits of a product with bfloat16 operands, next to those with float32 operands."""
    return products(*decimal_operands(m, k, n, seed))


def all_reduce(accelerator_type: str | None = None, nbytes: int = reduce.DEFAULT_BYTES, *,
    step: int = 0,
               ranks: int | None = None) -> Picture:  # fmt: skip
    """An all-reduce over the chips of a slice, or a ring of `ranks`, at `step`.

    Raises PodyardError INVALID_ARGUMENT for what cannot be shown.
    """
    trace = reduce.explain(ranks, accelerator_type, nbytes)
    return Picture(trace.title, reduce_html.figure(trace, step), (reduce_html.PACKAGE,))
