"""The reference models as programs: whole training steps that can be traced at any size, and run at
small ones.

A program is written as its user would write it, so that what an estimate says of it holds for a
user's own. Those that have data are what jobs train. Importing this module imports no JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from podyard.base.errors import invalid
from podyard.base.rng import Streams
from podyard.engine.recipes.arguments import (
    ArgumentRule,
    Choice,
    Flag,
    Real,
    Text,
    Whole,
    check_all,
)

if TYPE_CHECKING:
    from podyard.engine.recipes.model import Model


@dataclasses.dataclass(frozen=True)
class RecipeProgram:
    """A training step and what it is called with.

    `step`: f(state, batch, key) -> (state, metrics): forward, loss, gradient and optimizer, pure.
    `state` is {"params", "opt", "step"}, with "statistics" where a model keeps running averages;
    floats are float32, "step" counts the steps done (int32). `batch` is by feature, leading axis
    the global batch. `key` is a raw uint32[2], the same in every step: the step's number is folded
    in. `metrics` are float32 scalars: "loss" (nats) and, of classifiers, "accuracy" (0 to 1).

    `abstract_arguments(global_batch)`: (state, batch, key) as trees of jax.ShapeDtypeStruct,
    nothing allocated. Raises PodyardError INVALID_ARGUMENT for a batch below 1. `init(streams)`:
    the state before the first step, and `sample_batch(streams, batch_size)`: random examples; both
    in numpy.

    `example_count`: examples of the data set, which is one epoch.
    """

    name: str
    description: str
    example_count: int
    default_global_batch: int
    step: Callable[[Any, Any, Any], tuple[Any, Any]]
    abstract_arguments: Callable[[int], tuple[Any, Any, Any]]
    init: Callable[[Streams], Any]
    sample_batch: Callable[[Streams, int], Any]


@dataclasses.dataclass(frozen=True)
class ProgramManifest:
    """The facts of a program that are known before JAX is imported. `factory` is the module and the
    function that make its model of the checked arguments."""

    description: str
    default_global_batch: int
    arguments: Mapping[str, ArgumentRule]
    factory: tuple[str, str]


def _rate(default: float, description: str = "learning rate") -> Real:
    return Real(default, 1e-6, 100.0, description)


def _dropout(default: float) -> Real:
    return Real(default, 0.0, 0.9, "share of hidden units dropped while training")


_DATA = Text("", "folder of the data: TFRecord, IDX, CIFAR-10 or npz files; only training needs it")
_CNNS = "podyard.engine.recipes.small_models"
_FLOATS = Choice("bfloat16", ("bfloat16", "float32"), "type of activations; parameters are float32")

PROGRAMS: Mapping[str, ProgramManifest] = MappingProxyType(
    {
        "digits-cnn": ProgramManifest(
            "Convolutional network on 8x8 handwritten digits, the step that jobs train",
            128,
            {"learningRate": _rate(1e-3), "dropout": _dropout(0.25)},
            (_CNNS, "digits_cnn"),
        ),
        "mnist-cnn": ProgramManifest(
            "Two convolutions and two dense layers on MNIST; SGD with a decaying rate",
            128,
            {
                "learningRate": _rate(0.01, "learning rate at the start"),
                "dropout": _dropout(0.4),
                "data": _DATA,
            },
            (_CNNS, "mnist_cnn"),
        ),
        "fashion-cnn": ProgramManifest(
            "One convolution and one dense layer on Fashion-MNIST; Adam",
            1000,
            {"learningRate": _rate(1e-3), "data": _DATA},
            (_CNNS, "fashion_cnn"),
        ),
        "cifar10-cnn": ProgramManifest(
            "Four convolutions and two dense layers on CIFAR-10; Adam",
            32,
            {"learningRate": _rate(1e-3), "data": _DATA},
            (_CNNS, "cifar10_cnn"),
        ),
        "mlp": ProgramManifest(
            "Three dense layers (784-512-512-10) on MNIST; Adam",
            128,
            {"learningRate": _rate(1e-3), "data": _DATA},
            (_CNNS, "mlp"),
        ),
        "resnet-50": ProgramManifest(
            "ResNet-50 v1.5 on ImageNet; SGD with momentum, or LARS for large batches",
            1024,
            {
                "variant": Choice("v1.5", ("v1", "v1.5"), "v1: Keras', v1.5: MLPerf's"),
                "imageSize": Whole(224, 32, 512, "height and width of the images, pixels"),
                "classes": Whole(1000, 2, 100_000, "number of classes"),
                "data": _DATA,
                "dtype": _FLOATS,
                "optimizer": Choice("momentum", ("momentum", "lars"), "what moves the parameters"),
                "learningRate": _rate(
                    0.1, "peak learning rate per 256 examples of the global batch"
                ),
                "warmUpEpochs": Whole(
                    5, 0, 50, "epochs in which the learning rate rises to its peak"
                ),
                "batchNormGroups": Whole(
                    1, 1, 8192, "parts of the batch that are normalized by themselves"
                ),
            },
            ("podyard.engine.recipes.resnet", "resnet_50"),
        ),
        "transformer-lm": ProgramManifest(
            "Decoder-only transformer language model (pre-norm, GELU, tied embedding) on "
            "OpenWebText; Adam",
            64,
            {
                "layers": Whole(12, 1, 1000, "transformer blocks"),
                "width": Whole(768, 8, 65536, "size of a position's vector, a multiple of heads"),
                "heads": Whole(12, 1, 1024, "attention heads"),
                "sequence": Whole(1024, 2, 1 << 20, "tokens that the model sees at once"),
                "vocabulary": Whole(50257, 2, 1 << 24, "different tokens"),
                "data": Text("", "folder of the data: *.txt, or train.bin and val.bin"),
                "dtype": _FLOATS,
                "scan": Flag(
                    None, "one traced block, run over all layers; otherwise one after the other"
                ),
                "remat": Flag(False, "compute a block's activations again in the backward pass"),
                "learningRate": _rate(3e-4),
            },
            ("podyard.engine.recipes.transformer", "transformer_lm"),
        ),
    }
)


def program_of(name: str, arguments: Mapping[str, object]) -> RecipeProgram:
    """The program with `arguments`; those not given have their defaults.

    Raises PodyardError INVALID_ARGUMENT for an unknown program or argument, a wrong type, a value
    out of bounds or values that do not fit together; the message says what is allowed.
    """
    model = model_of(name, arguments)
    manifest = PROGRAMS[name]
    return RecipeProgram(
        name=name,
        description=manifest.description,
        example_count=model.example_count,
        default_global_batch=manifest.default_global_batch,
        step=model.step,
        abstract_arguments=model.abstract_arguments,
        init=model.first_state,
        sample_batch=model.sample_batch,
    )


def model_of(name: str, arguments: Mapping[str, object]) -> Model:
    """Return what `program_of` is made from; raises what that raises."""
    if name not in PROGRAMS:
        raise invalid(f"unknown program {name!r}: use {', '.join(sorted(PROGRAMS))}", "program")
    manifest = PROGRAMS[name]
    checked = check_all(f"program {name}", manifest.arguments, arguments)
    module_name, function = manifest.factory
    model: Model = getattr(importlib.import_module(module_name), function)(checked)
    return model
