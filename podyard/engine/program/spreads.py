"""The shardings of a program's arrays, remembered for the slices that have as many devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.engine.program.factors import Rule
from podyard.engine.program.ir import Program
from podyard.engine.program.propagation import Propagation
from podyard.engine.program.shardings import Axes
from podyard.engine.program.sums import scatter_into_sums

# Programs whose shardings are remembered: slices with as many devices are compared one after the
# other, and a plan has about four sizes.
_SPREADS_MAX = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """The shardings of the arrays of `source`: only the number of devices decides them."""

    source: Program
    simplified: Program
    dims: Mapping[int, Sequence[Axes]]
    rules: Mapping[int, Rule]

    def is_of(self, program: Program) -> bool:
        own = self.source
        return (
            own.body is program.body
            and own.types is program.types
            and own.mesh == program.mesh
            and own.shardings == program.shardings
            and own.result_shardings == program.result_shardings
        )


_spreads: tuple[Spread, ...] = ()


def spread_of(program: Program) -> Spread:
    """Return the shardings of a program's arrays on its mesh."""
    global _spreads
    spread = next((one for one in _spreads if one.is_of(program)), None)
    if spread is None:
        simplified = scatter_into_sums(program)
        propagation = Propagation(simplified, simplified.types)
        propagation.run()
        spread = Spread(program, simplified, propagation.dims, propagation.rules)
    else:
        body, types = spread.simplified.body, spread.simplified.types
        simplified = dataclasses.replace(program, body=body, types=types)
        spread = dataclasses.replace(spread, simplified=simplified)
    _spreads = (spread, *(one for one in _spreads if not one.is_of(program)))[:_SPREADS_MAX]
    return spread
