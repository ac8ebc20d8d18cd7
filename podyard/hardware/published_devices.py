"""Peak and memory of a slice as they were published. Google announced v2 and v3 by boards of four
chips, whose peak is not the sum of the figures of the chips that were published later."""

from __future__ import annotations

import dataclasses

from podyard.hardware.accelerator_types import AcceleratorType

_BOARD_CHIPS = 4
_TERA = 10**12
_GIB = 2**30
# Of a board. The pods agree: 64 boards of v2 are 11.5 petaflops, 256 of v3 are 107.5 ("over 100").
_BOARDS = {
    "v2": (180, "https://cloud.google.com/tpu (2018): Cloud TPU v2, 180 teraflops, 64 GB HBM"),
    "v3": (420, "https://cloud.google.com/tpu (2018): Cloud TPU v3, 420 teraflops, 128 GB HBM"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedDevice:
    """Of a whole slice; each figure with its source."""

    bf16_teraflops: float
    bf16_teraflops_source: str
    hbm_gib: int
    hbm_gib_source: str


def published_device(kind: AcceleratorType) -> PublishedDevice:
    generation = kind.generation
    board = _BOARDS.get(generation.name)
    if board is not None:
        teraflops, source = board[0] * kind.chip_count / _BOARD_CHIPS, board[1]
    else:
        teraflops = generation.peak_bf16_flops_per_second * kind.chip_count / _TERA
        source = f"{kind.chip_count} chips: {generation.sources['peak_bf16_flops_per_second']}"
    memory = generation.hbm_bytes * kind.chip_count // _GIB
    chips = f"{kind.chip_count} chips: {generation.sources['hbm_bytes']}"
    return PublishedDevice(teraflops, source, memory, chips)
