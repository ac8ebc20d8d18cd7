"""An inference on an Edge TPU: its operations, memory, time and energy."""

from __future__ import annotations

import dataclasses

from podyard.engine.timing.edge import EDGE_TPU, EdgeEstimate


@dataclasses.dataclass(frozen=True, slots=True)
class EdgeInference:
    """`operations`: how many there are, by their names; `on_host`: those that the host computes
    before and behind the chip. `weight_bytes`: what stays the same from one inference to the next;
    `activation_bytes`: the other arguments and the results."""

    operations: dict[str, int]
    on_host: dict[str, int]
    macs: int
    weight_bytes: int
    activation_bytes: int
    estimate: EdgeEstimate

    @property
    def fits(self) -> bool:
        """True if all weights stay in the chip's memory."""
        return self.weight_bytes <= EDGE_TPU.sram_bytes
