"""Loads a model that was trained and exported, and asks it: with JAX, NumPy and safetensors,
without the code that trained it.

    model = load(Path("export"))
    answers = model.predict({"image": images})

The answers have the bits of the run's own predictions for batches of the same size, on the same
kind of CPU, if JAX was started with NPROC=2, as runs are: it cuts sums by the number of CPUs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from jax import export
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found

FORMAT = 1
MANIFEST, MODEL, PROGRAM = "manifest.json", "model.safetensors", "predict.stablehlo"
PARAMS, STATISTICS = "params/", "statistics/"
# What a manifest may ask of the compiler: other options write files.
_OPTIONS_PREFIX = "xla_cpu_"
_KINDS = {
    "step": int, "inputs": dict, "outputs": dict, "parameters": dict, "statistics": dict,
    "files": dict,
    "callingConvention": int, "compilerOptions": dict,
}  # fmt: skip

Shapes = Mapping[str, tuple[int, ...]]
Tensors = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class ExportedFeature:
    """Of one example: `dtype` as NumPy names it ("bfloat16" as well), `shape` without the axis of
    examples."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> ExportedFeature:
        return cls(str(described["dtype"]), tuple(int(width) for width in described["shape"]))

    def describe(self) -> dict[str, object]:
        return {"dtype": self.dtype, "shape": list(self.shape)}


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model as it was after `step` steps. `inputs`: the features that it reads; `output`: what it
    answers for an example; `batch_size`: of its program, None for any; `manifest`: all that was
    written about it."""

    step: int
    inputs: Mapping[str, ExportedFeature]
    output: ExportedFeature
    batch_size: int | None
    manifest: Mapping[str, Any]
    _run: Any = dataclasses.field(repr=False)
    _tensors: tuple[Any, Any] = dataclasses.field(repr=False)

    def predict(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """An answer per example of `batch`, feature name -> [examples, ...], computed on the CPU in
        one piece (of a program of a fixed size: in pieces of that size, of which the last one is
        filled up).

        Raises what `check` raises.
        """
        count = self.check(batch)
        size = self.batch_size or count
        answers = []
        for start in range(0, count, size):
            piece = {name: _fill(batch[name][start : start + size], size) for name in self.inputs}
            answers.append(np.asarray(self._run(*self._tensors, piece)))
        return np.concatenate(answers)[:count]

    def check(self, batch: Mapping[str, NDArray[Any]]) -> int:
        """The number of examples. Raises PodyardError INVALID_ARGUMENT for other features, types or
        shapes than
        `inputs` has, for features of different numbers of examples, and for none."""
        if set(batch) != set(self.inputs):
            raise invalid(
                f"the model reads {_listing(self.inputs)}, and was given "
                f"{_listing(batch) or 'nothing'}"
            )
        for name, feature in self.inputs.items():
            found = batch[name]
            if (
                found.dtype.name != feature.dtype
                or found.ndim == 0
                or found.shape[1:] != feature.shape
            ):
                expected = ", ".join(["examples", *map(str, feature.shape)])
                why = (
                    f"{name} is {found.dtype.name}{list(found.shape)}; the model reads "
                    f"{feature.dtype}[{expected}]"
                )
                raise invalid(why, name)
        counts = {name: len(batch[name]) for name in self.inputs}
        if len(set(counts.values())) != 1:
            raise invalid(f"features have different numbers of examples: {counts}")
        count = next(iter(counts.values()))
        if count == 0:
            raise invalid("there is no example to answer for")
        return count


@dataclasses.dataclass(frozen=True)
class ExportFiles:
    """The content of an export's files. `tensors`: (parameters, statistics) by name; `program` is
    called with both and a batch."""

    manifest: Mapping[str, Any]
    program: export.Exported
    tensors: tuple[Tensors, Tensors]
    inputs: Mapping[str, ExportedFeature]
    output: ExportedFeature
    batch_size: int | None


def load(folder: Path) -> Exported:
    """The model in `folder`; raises what `read_files` raises."""
    files = read_files(folder)
    # Here, whatever other devices this process has.
    cpu = jax.devices("cpu")[0]
    options = _known_options(files.manifest["compilerOptions"])
    return Exported(
        files.manifest["step"],
        files.inputs,
        files.output,
        files.batch_size,
        files.manifest,
        jax.jit(files.program.call, compiler_options=options),
        jax.device_put(files.tensors, cpu),
    )


def read_files(folder: Path) -> ExportFiles:
    """The files of the export in `folder`, checked against its manifest.

    Raises PodyardError NOT_FOUND where no export is, DATA_LOSS for one that is damaged or
    incomplete, FAILED_PRECONDITION for one that this version of Podyard or of JAX does not read.
    """
    manifest = _read_manifest(folder)
    files = {name: _read_file(folder, name, manifest) for name in (MODEL, PROGRAM)}
    program = _read_program(files[PROGRAM], manifest)
    try:
        inputs = {
            name: ExportedFeature.of(described) for name, described in manifest["inputs"].items()
        }
        output = ExportedFeature.of(manifest["outputs"])
        shapes = _shapes(manifest["parameters"]), _shapes(manifest["statistics"])
        batch_size = None if manifest["batch"] is None else int(manifest["batch"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damage(folder, "its manifest is incomplete") from error
    tensors = _read_tensors(folder, files[MODEL], shapes)
    if _signature(program) != (*shapes, inputs, output, batch_size):
        raise _damage(folder, "its program is not the one that the manifest describes")
    return ExportFiles(manifest, program, tensors, inputs, output, batch_size)


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise not_found(str(folder / MANIFEST)) from error
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise _damage(folder, "its manifest is not JSON") from error
    if not isinstance(manifest, dict):
        raise _damage(folder, "its manifest is incomplete")
    if manifest.get("format") != FORMAT:
        raise failed_precondition(
            f"the export in {folder} has format {manifest.get('format')}, not {FORMAT}"
        )
    if any(not isinstance(manifest.get(key), kind) for key, kind in _KINDS.items()):
        raise _damage(folder, "its manifest is incomplete")
    return manifest


def _read_file(folder: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise _damage(folder, f"{name} cannot be read: {error.strerror}") from error
    expected = manifest["files"].get(name)
    if not isinstance(expected, dict) or hashlib.sha256(data).hexdigest() != expected.get("sha256"):
        raise _damage(
            folder, f"the {len(data)} bytes of {name} do not have the checksum of the manifest"
        )
    return data


def _read_program(data: bytes, manifest: Mapping[str, Any]) -> export.Exported:
    lowest = export.minimum_supported_calling_convention_version
    highest = export.maximum_supported_calling_convention_version
    written = f"the program was written by JAX {manifest.get('jax')}, and this is {jax.__version__}"
    if not lowest <= manifest["callingConvention"] <= highest:
        found = manifest["callingConvention"]
        raise failed_precondition(
            f"{written}, which reads calling conventions {lowest} to {highest}, not {found}"
        )
    try:
        program = export.deserialize(bytearray(data))
    except ImportError as error:
        raise failed_precondition(
            f"a program is read with flatbuffers (podyard[engine]): {error}"
        ) from error
    except Exception as error:  # what a decoder makes of another version's bytes is any exception
        raise failed_precondition(f"{written}, which cannot read it: {str(error)[:200]}") from error
    if "cpu" not in program.platforms:
        raise failed_precondition(
            f"the program is for {', '.join(program.platforms)}, not for CPUs"
        )
    return program


def _read_tensors(
    folder: Path, data: bytes, shapes: tuple[Shapes, Shapes]
) -> tuple[Tensors, Tensors]:
    """(parameters, statistics) by name."""
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise _damage(folder, f"{MODEL} cannot be read") from error
    params, statistics = (
        {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix)
        }
        for prefix in (PARAMS, STATISTICS)
    )
    for found, expected in zip((params, statistics), shapes, strict=True):
        if {name: value.shape for name, value in found.items()} != expected:
            raise _damage(folder, f"the tensors of {MODEL} are not those of the manifest")
    return params, statistics


def _signature(
    program: export.Exported,
) -> tuple[Shapes, Shapes, Mapping[str, ExportedFeature], ExportedFeature, int | None]:
    """(parameters, statistics, inputs, output, batch size) that a program has been written for."""
    (params, statistics, batch), _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    size = next(iter(batch.values())).shape[0]
    return (
        {name: aval.shape for name, aval in params.items()},
        {name: aval.shape for name, aval in statistics.items()},
        {name: feature_of(aval) for name, aval in batch.items()},
        feature_of(program.out_avals[0]),
        size if isinstance(size, int) else None,
    )


def feature_of(array: Any) -> ExportedFeature:
    """Of an array of examples, or of what stands for one while a program is traced."""
    return ExportedFeature(array.dtype.name, tuple(array.shape[1:]))


def _shapes(described: Mapping[str, Sequence[int]]) -> Shapes:
    return {name: tuple(int(width) for width in shape) for name, shape in described.items()}


def _fill(array: NDArray[Any], size: int) -> NDArray[Any]:
    """`size` examples: those of `array`, then its last one again."""
    return np.concatenate([array, np.repeat(array[-1:], size - len(array), axis=0)])


def _known_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that this version of XLA has. Without the others numbers may round differently."""
    known = {}
    for name, value in options.items():
        if name.startswith(_OPTIONS_PREFIX):
            try:
                jax.jit(lambda number: number, compiler_options={name: value}).lower(0.0).compile()
            except RuntimeError:  # "No such compile option"
                continue
            known[name] = value
    return known


def _listing(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names))


def _damage(folder: Path, why: str) -> PodyardError:
    return PodyardError(Code.DATA_LOSS, f"the export in {folder} is damaged: {why}")
