"""Cycles of one matrix product on one systolic array, in closed form."""

from __future__ import annotations

from typing import Literal

from podyard.base.errors import invalid

Dataflow = Literal["ws", "is", "os"]


def systolic_cycles(
    m: int, k: int, n: int, rows: int = 128, cols: int = 128, dataflow: Dataflow = "ws"
) -> int:
    """SCALE-Sim's stall-free count for [m, k] x [k, n] on a rows x cols array, exactly.

    Every fold loads, streams and drains before the next begins. Source: fitted to and equal on all
    rows of
    scalesim 3.0.0. Raises PodyardError INVALID_ARGUMENT for a size below 1.
    """
    if min(m, k, n, rows, cols) < 1:
        raise invalid(
            f"a matrix product has positive sizes, not m={m} k={k} n={n} on {rows}x{cols}"
        )
    if dataflow == "ws":
        on_rows, on_cols, streamed, load = k, n, m, rows
    elif dataflow == "is":
        on_rows, on_cols, streamed, load = k, m, n, rows
    elif dataflow == "os":
        on_rows, on_cols, streamed, load = m, n, k, 0
    else:
        raise invalid(f"dataflow {dataflow!r} is not one of ws, is, os")
    folds = -(-on_rows // rows) * -(-on_cols // cols)
    return folds * (load + rows + cols + streamed - 2) - 1
