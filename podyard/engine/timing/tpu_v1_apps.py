"""Six applications of the first TPU, as programs for its model, with what was published of them.

Published are the number of layers, weights, batch and multiplications per byte of weights; widths,
order and what the layers between the products do are not. `Application.chosen` says what was chosen
here to meet the published numbers. All six run on one model of the machine with one set of
constants.

Source of everything published: Jouppi et al., In-Datacenter Performance Analysis of a Tensor
Processing Unit, ISCA 2017 (arXiv 1704.04760), tables 1 and 3: told from memory, unverified.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

from podyard.base.errors import not_found
from podyard.engine.timing.tpu_v1 import (
    TPU_V1,
    ProgramBuilder,
    Timeline,
    TpuV1Machine,
    TpuV1Program,
    simulate,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """Published facts (unverified), and how its program is written. `weights` are a count,
    `macs_per_weight` is what
    the paper calls operations per byte of weights, `active_share` is the share of cycles with the
    array active."""

    name: str
    layers: str
    weights: int
    macs_per_weight: int
    batch: int
    tops: float
    active_share: float
    chosen: str
    write: Callable[[ProgramBuilder], ProgramBuilder]
    activation_bits: int = 8

    def program(self, machine: TpuV1Machine = TPU_V1) -> TpuV1Program:
        return self.write(ProgramBuilder(self.batch, self.activation_bits, machine=machine)).build()


def _mlp(builder: ProgramBuilder, widths: tuple[int, ...]) -> ProgramBuilder:
    builder.read(widths[0])
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        builder.fully_connected(f"fc{layer}", inputs, outputs)
    return builder.write(widths[-1])


def _lstm0(builder: ProgramBuilder) -> ProgramBuilder:
    width = 736
    builder.read(width)
    for cell in range(12):
        builder.fully_connected(f"cell{cell}.input", width, width, parts=4)
        builder.fully_connected(f"cell{cell}.recurrent", width, width, parts=4)
        builder.vector(f"cell{cell}.gates", 4 * width).vector(f"cell{cell}.state", width)
        if cell < 10:
            builder.vector(f"cell{cell}.sum", width)
    return builder.write(width)


def _lstm1(builder: ProgramBuilder) -> ProgramBuilder:
    width, outputs = 600, 2700
    builder.read(width)
    for cell in range(18):
        builder.fully_connected(f"cell{cell}.gates", width, width, parts=4)
        builder.vector(f"cell{cell}.state", 4 * width)
        builder.fully_connected(f"cell{cell}.projection", width, width)
    return (
        builder.fully_connected("output", width, outputs).vector("softmax", outputs).write(outputs)
    )


def _cnn0(builder: ProgramBuilder) -> ProgramBuilder:
    points, planes, depth = 19 * 19, 48, 256
    builder.read(points * planes).convolution("conv0", points, 9, planes, depth)
    for layer in range(1, 14):
        builder.convolution(f"conv{layer}", points, 9, depth, depth)
    builder.convolution("conv14", points, 1, depth, depth).convolution(
        "conv15", points, 1, depth, depth
    )
    return builder.write(points * depth)


def _cnn1(builder: ProgramBuilder) -> ProgramBuilder:
    depth = 192
    builder.read(299 * 299 * 3)
    for stage, (side, width) in enumerate(((35, 320), (17, 1024), (8, 2048))):
        for module in range(4):
            _inception(builder, f"stage{stage}.{module}", side * side, depth, width)
            depth = width
    builder.pool("pool", 1, 8 * 8, depth)
    for layer, (inputs, outputs) in enumerate(
        ((depth, 4608), (4608, 4608), (4608, 4608), (4608, 1500))
    ):
        builder.fully_connected(f"fc{layer}", inputs, outputs)
    return builder.write(1500)


def _inception(builder: ProgramBuilder, name: str, points: int, depth: int, width: int) -> None:
    """Six convolutions and a pool; the four branches' shares of `width` are those of GoogLeNet's
    module 4c."""
    builder.convolution(f"{name}.1x1", points, 1, depth, width // 4)
    builder.convolution(f"{name}.3x3reduce", points, 1, depth, width // 4)
    builder.convolution(f"{name}.3x3", points, 9, width // 4, width // 2)
    builder.convolution(f"{name}.5x5reduce", points, 1, depth, width // 16)
    builder.convolution(f"{name}.5x5", points, 25, width // 16, width // 8)
    builder.pool(f"{name}.pool", points, 9, depth).convolution(
        f"{name}.pooled", points, 1, depth, width // 8
    )


_SIXTEEN_BITS = (
    "activations of 16 bits: with 8, the published share of active cycles would be about twice "
    "what the published "
    "speed needs; it hardly moves the result, because the weights are what it waits for"
)

APPLICATIONS: Mapping[str, Application] = {
    application.name: application
    for application in (
        Application(
            name="MLP0",
            layers="5 FC",
            weights=20_000_000,
            macs_per_weight=200,
            batch=200,
            tops=12.3,
            active_share=0.127,
            chosen="all layers 2000 wide",
            write=functools.partial(_mlp, widths=(2000,) * 6),
        ),
        Application(
            name="MLP1",
            layers="4 FC",
            weights=5_000_000,
            macs_per_weight=168,
            batch=168,
            tops=9.7,
            active_share=0.106,
            chosen="1200 wide, 500 results",
            write=functools.partial(_mlp, widths=(1200, 1200, 1200, 1200, 500)),
        ),
        Application(
            name="LSTM0",
            layers="24 FC + 34 vector",
            weights=52_000_000,
            macs_per_weight=64,
            batch=64,
            tops=3.7,
            active_share=0.082,
            chosen="12 cells 736 wide, each a product of the input and one of the state with four "
            "gates, and two or "
            "three vector layers; " + _SIXTEEN_BITS,
            write=_lstm0,
            activation_bits=16,
        ),
        Application(
            name="LSTM1",
            layers="37 FC + 19 vector",
            weights=34_000_000,
            macs_per_weight=96,
            batch=96,
            tops=2.8,
            active_share=0.105,
            chosen="matrices of 600 x 600 (told of it in the paper's text): 18 cells of four gates "
            "and a projection, "
            "and 2700 results; " + _SIXTEEN_BITS,
            write=_lstm1,
            activation_bits=16,
        ),
        Application(
            name="CNN0",
            layers="16 conv",
            weights=8_000_000,
            macs_per_weight=2888,
            batch=8,
            tops=86.0,
            active_share=0.782,
            chosen=(
                "19 x 19 points (2888 = 8 x 361), 48 planes in, 256 features, 14 "
                "layers of 3 x 3 "
                "and 2 of 1 x 1"
            ),
            write=_cnn0,
        ),
        Application(
            name="CNN1",
            layers="4 FC + 72 conv + 13 pool",
            weights=100_000_000,
            macs_per_weight=1750,
            batch=32,
            tops=14.1,
            active_share=0.462,
            chosen="12 inception modules with the shares of GoogLeNet's 4c, four each on "
            "35 x 35, 17 "
            "x 17 and 8 x 8 "
            "points (the grids of Inception v3), 320, 1024 and 2048 features deep; one pool over "
            "the last; 4608 wide "
            "after it. Chosen among several that meet the published facts, whose speeds "
            "differ by half",
            write=_cnn1,
        ),
    )
}


def run(name: str, machine: TpuV1Machine = TPU_V1) -> Timeline:
    """One batch of application `name`. Raises PodyardError NOT_FOUND for an unknown name."""
    if name not in APPLICATIONS:
        raise not_found(f"TPU v1 application {name}")
    return simulate(APPLICATIONS[name].program(machine), machine)


# Of the datacenter's inference: MLPs 61 % (table 1, from memory), CNNs 5 % (the paper's
# discussion), and all six 95 % (its abstract), which leaves 29 % for LSTMs. How a kind's share is
# split between its two is not known: evenly here.
_SHARES: Mapping[str, float] = {"MLP": 0.61 / 2, "LSTM": 0.29 / 2, "CNN": 0.05 / 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Speedups:
    """How many times as fast as a TPU v1 another machine runs each application, and three means
    over the six."""

    each: Mapping[str, float]

    @property
    def arithmetic_mean(self) -> float:
        return sum(self.each.values()) / len(self.each)

    @property
    def geometric_mean(self) -> float:
        return math.exp(sum(math.log(factor) for factor in self.each.values()) / len(self.each))

    @property
    def weighted_mean(self) -> float:
        """Arithmetic, weighted with how much of the datacenter's work each kind of application was
        (unverified)."""
        shares = {name: _SHARES[name.rstrip("01")] for name in self.each}
        return sum(shares[name] * factor for name, factor in self.each.items()) / sum(
            shares.values()
        )


def speedups(machine: TpuV1Machine) -> Speedups:
    """All six applications on `machine` against the TPU v1 as it was."""
    return Speedups({name: run(name).seconds / run(name, machine).seconds for name in APPLICATIONS})
