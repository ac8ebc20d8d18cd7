"""The recipe manifest: what a job may ask of each recipe, or of a user's program, checked at
submit, without JAX.

The engine's recipes of the same names do the work; this is what the API, the console and the
command line know of them. A program is "module:function", a file of the user's: nothing is known of
it before it runs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from podyard.base.errors import invalid
from podyard.base.training_settings import DIGITS, TEXTS

Number = int | float

PROGRAM_ARGUMENTS_MAX = 64
PROGRAM_ARGUMENTS_BYTES_MAX = 16 * 1024  # settings, not data: data lies in the data sets
PROGRAM_LIST_DEPTH_MAX = 8
PROGRAM_CHECKPOINT_EVERY_STEPS = 100

_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """A numeric argument and its bounds, both inclusive. `kind` int refuses fractions."""

    kind: type[int] | type[float]
    default: Number
    minimum: Number
    maximum: Number
    description: str

    def check(self, name: str, value: object) -> Number:
        """`value` as `kind`; raises INVALID_ARGUMENT naming `name`, what was given and what is
        allowed."""
        field = f"arguments.{name}"
        expected = "a whole number" if self.kind is int else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(f"{field} must be {expected}, got {value!r}", field)
        if self.kind is int and (not math.isfinite(value) or value != int(value)):
            raise invalid(f"{field} must be {expected}, got {value!r}", field)
        # NaN compares false with everything, so it is refused here.
        if not self.minimum <= value <= self.maximum:
            raise invalid(
                f"{field} must be between {self.minimum} and {self.maximum}, got {value!r}", field
            )
        return self.kind(value)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceArgument:
    """One of `options`, which are texts."""

    default: str
    options: tuple[str, ...]
    description: str

    def check(self, name: str, value: object) -> str:
        """`value`; raises INVALID_ARGUMENT naming `name` and the options."""
        if not isinstance(value, str) or value not in self.options:
            field = f"arguments.{name}"
            raise invalid(f"{field} must be {' or '.join(self.options)}, got {value!r}", field)
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class FlagArgument:
    """True or false; the recipe decides where the default is None."""

    options: ClassVar[tuple[str, ...]] = ("true", "false")
    default: bool | None
    description: str

    def check(self, name: str, value: object) -> bool | None:
        """`value`; raises INVALID_ARGUMENT naming `name`."""
        if not isinstance(value, bool) and value is not self.default:
            field = f"arguments.{name}"
            raise invalid(f"{field} must be true or false, got {value!r}", field)
        return value if isinstance(value, bool) else None


@dataclasses.dataclass(frozen=True, slots=True)
class FolderArgument:
    """A folder below the agent's data sets: parts joined by "/", none of them hidden. A job has to
    name one where there is no default."""

    description: str
    default: str = ""

    def check(self, name: str, value: object) -> str:
        """`value`; raises INVALID_ARGUMENT naming `name` for anything that could be elsewhere."""
        field = f"arguments.{name}"
        if not isinstance(value, str) or not _FOLDER.fullmatch(value):
            if not value:
                raise invalid(f"{field} is required", field)
            raise invalid(
                f"{field} must be a folder of data sets, such as mnist or vision/cifar-10, "
                f"got {value!r}",
                field,
            )
        return value


AnyArgument = Argument | ChoiceArgument | FlagArgument | FolderArgument


@dataclasses.dataclass(frozen=True, slots=True)
class RecipeManifest:
    """Defaults are what a job gets that does not say. `training_example_count` is None where the
    data decides."""

    name: str
    description: str
    modes: tuple[str, ...]
    arguments: Mapping[str, AnyArgument]
    default_steps: int
    default_global_batch: int
    default_checkpoint_every_steps: int
    training_example_count: int | None


_MODES = ("train", "evaluate", "predict", "export")
_DTYPE = ChoiceArgument(
    "bfloat16", ("bfloat16", "float32"), "type of activations; parameters are float32"
)


def _of_files(
    name: str, description: str, arguments: Mapping[str, Argument], *, steps: int, global_batch: int
) -> RecipeManifest:
    """A recipe whose data is in a folder that the job names."""
    return RecipeManifest(
        name=name,
        description=description,
        modes=_MODES,
        arguments=MappingProxyType(
            {**arguments, "data": FolderArgument("folder of the data, below the data sets")}
        ),
        default_steps=steps,
        default_global_batch=global_batch,
        default_checkpoint_every_steps=100,
        training_example_count=None,
    )


_MANIFESTS = (
    RecipeManifest(
        name="digits-cnn",
        description=(
            "Convolutional network on scikit-learn's 1,797 handwritten digits (8x8); "
            "needs no download"
        ),
        modes=_MODES,
        arguments=MappingProxyType(
            {
                "learningRate": Argument(float, 1e-3, 1e-6, 1.0, "Adam's learning rate"),
                "dropout": Argument(
                    float, 0.25, 0.0, 0.9, "share of hidden units dropped while training"
                ),
            }
        ),
        default_steps=400,
        default_global_batch=128,
        default_checkpoint_every_steps=100,
        training_example_count=1438,
    ),
    _of_files(
        "mnist-cnn",
        "Two convolutions and two dense layers on MNIST files (TFRecord, IDX, npz); SGD with a "
        "decaying rate",
        {
            "learningRate": Argument(float, 0.01, 1e-6, 100.0, "learning rate at the start"),
            "dropout": Argument(
                float, 0.4, 0.0, 0.9, "share of hidden units dropped while training"
            ),
        },
        steps=1000,
        global_batch=128,
    ),
    _of_files(
        "fashion-cnn",
        "One convolution and one dense layer on Fashion-MNIST files (IDX, TFRecord, npz); Adam",
        {"learningRate": Argument(float, 1e-3, 1e-6, 100.0, "learning rate")},
        steps=300,
        global_batch=1000,
    ),
    _of_files(
        "cifar10-cnn",
        "Four convolutions and two dense layers on CIFAR-10's binary files, augmented; Adam",
        {"learningRate": Argument(float, 1e-3, 1e-6, 100.0, "learning rate")},
        steps=1000,
        global_batch=32,
    ),
    _of_files(
        "mlp",
        "Three dense layers (784-512-512-10) on MNIST files; Adam",
        {"learningRate": Argument(float, 1e-3, 1e-6, 100.0, "learning rate")},
        steps=1000,
        global_batch=128,
    ),
    RecipeManifest(
        name="resnet-50",
        description=(
            "ResNet-50 with the weights of keras.applications; on scikit-learn's digits, or image "
            "files"
        ),
        modes=_MODES,
        arguments=MappingProxyType(
            {
                "variant": ChoiceArgument("v1", ("v1", "v1.5"), "v1: Keras', v1.5: MLPerf's"),
                "imageSize": Argument(int, 224, 32, 512, "height and width of the images, pixels"),
                "classes": Argument(int, 1000, 2, 100_000, "number of classes"),
                "data": FolderArgument("sklearn-digits, or a folder below the data sets", DIGITS),
                "dtype": _DTYPE,
                "optimizer": ChoiceArgument(
                    "momentum", ("momentum", "lars"), "what moves the parameters"
                ),
                "learningRate": Argument(
                    float, 0.1, 1e-6, 100.0, "peak learning rate per 256 examples of the batch"
                ),
                "warmUpEpochs": Argument(
                    int, 0, 0, 50, "epochs of ImageNet in which the learning rate rises"
                ),
                "batchNormGroups": Argument(
                    int, 1, 1, 8192, "parts of a core's batch that are normalized by themselves"
                ),
            }
        ),
        default_steps=50,
        default_global_batch=32,
        default_checkpoint_every_steps=25,
        training_example_count=None,
    ),
    RecipeManifest(
        name="transformer-lm",
        description=(
            "Language model with the layers of GPT-2; on scikit-learn's texts, or text files; Adam"
        ),
        modes=_MODES,
        arguments=MappingProxyType(
            {
                "layers": Argument(int, 12, 1, 1000, "transformer blocks"),
                "width": Argument(int, 768, 8, 65_536, "size of a position's vector"),
                "heads": Argument(int, 12, 1, 1024, "attention heads, which divide the width"),
                "sequence": Argument(int, 1024, 2, 1 << 20, "tokens that the model sees at once"),
                "vocabulary": Argument(int, 50_257, 2, 1 << 24, "different tokens"),
                "data": FolderArgument("sklearn-texts, or a folder below the data sets", TEXTS),
                "dtype": _DTYPE,
                "scan": FlagArgument(None, "one traced block, run over all layers"),
                "remat": FlagArgument(False, "compute activations again in the backward pass"),
                "learningRate": Argument(float, 3e-4, 1e-6, 100.0, "learning rate"),
            }
        ),
        default_steps=50,
        default_global_batch=8,
        default_checkpoint_every_steps=25,
        training_example_count=None,
    ),
)

RECIPES: Mapping[str, RecipeManifest] = MappingProxyType(
    {manifest.name: manifest for manifest in _MANIFESTS}
)


def manifest_of(recipe: str) -> RecipeManifest:
    """Raises INVALID_ARGUMENT that lists the known recipes."""
    if recipe not in RECIPES:
        raise invalid(f"unknown recipe {recipe!r}: use {', '.join(sorted(RECIPES))}", "recipe")
    return RECIPES[recipe]


def is_program(recipe: str) -> bool:
    """Return whether the recipe of a job is a user's program."""
    return ":" in recipe


def check_program(program: str) -> str:
    """`program`; raises INVALID_ARGUMENT unless it is "module:function", both plain names."""
    module, _, function = program.partition(":")
    if len(program) > 200 or not _NAME.fullmatch(module) or not _NAME.fullmatch(function):
        raise invalid(
            f"program must be MODULE:FUNCTION, such as my_model:build, got {program[:200]!r}",
            "program",
        )
    return program


def check_arguments(recipe: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """All arguments of `recipe`: the given ones checked, the others by default. A program's are
    taken as they are.

    Raises PodyardError INVALID_ARGUMENT for an unknown recipe or argument, a wrong type, a value
    out of bounds.
    """
    if is_program(recipe):
        return _program_arguments(arguments)
    manifest = manifest_of(recipe)
    for name in arguments:
        if name not in manifest.arguments:
            known = ", ".join(manifest.arguments) or "none"
            raise invalid(
                f"unknown argument {name!r} of recipe {recipe}: use {known}", f"arguments.{name}"
            )
    checked = {
        name: argument.check(name, arguments.get(name, argument.default))
        for name, argument in manifest.arguments.items()
    }
    return {name: value for name, value in checked.items() if value is not None}


def _program_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    if len(arguments) > PROGRAM_ARGUMENTS_MAX:
        text = f"a program can have at most {PROGRAM_ARGUMENTS_MAX} arguments, got {len(arguments)}"
        raise invalid(text, "arguments")
    for name, value in arguments.items():
        if not _NAME.fullmatch(name):
            raise invalid(
                f"arguments.{name[:80]!r} is not a valid argument name: use a Python identifier",
                "arguments",
            )
        _check_plain(f"arguments.{name}", value, 0)
    size = len(json.dumps(dict(arguments)).encode())
    if size > PROGRAM_ARGUMENTS_BYTES_MAX:
        text = (
            "the arguments of a program can have at most "
            f"{PROGRAM_ARGUMENTS_BYTES_MAX} bytes of "
            f"JSON, got {size}"
        )
        raise invalid(text, "arguments")
    return dict(arguments)


def _check_plain(field: str, value: object, depth: int) -> None:
    if isinstance(value, list) and depth < PROGRAM_LIST_DEPTH_MAX:
        for item in value:
            _check_plain(field, item, depth + 1)
    elif not (
        value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        raise invalid(
            f"{field} must be a number, a string, true, false, null, or a list of these", field
        )


def check_mode(recipe: str, mode: str) -> None:
    """Raises INVALID_ARGUMENT when `recipe` does not have `mode`."""
    modes = _MODES if is_program(recipe) else manifest_of(recipe).modes
    if mode not in modes:
        raise invalid(f"unknown mode {mode!r} of recipe {recipe}: use {', '.join(modes)}", "mode")


def check_batch(
    global_batch: int,
    cores: int,
    training_example_count: int | None = None,
    accumulation_steps: int = 1,
) -> int:
    """`global_batch`; raises INVALID_ARGUMENT unless it is a positive multiple of the slice's core
    count times the accumulation steps, and at most all training examples when their number is
    given."""
    if not 1 <= global_batch < 2**31 or global_batch % (cores * accumulation_steps):
        times = "" if accumulation_steps == 1 else f" times {accumulation_steps} accumulation steps"
        text = (
            f"globalBatch {global_batch} is not a positive multiple of the slice's {cores} "
            f"cores{times}"
        )
        raise invalid(text, "globalBatch")
    if training_example_count is not None and global_batch > training_example_count:
        raise invalid(
            f"globalBatch {global_batch} is more than the {training_example_count} "
            "training examples",
            "globalBatch",
        )
    return global_batch
