"""Checkpoints: all tensors in one safetensors file, and a manifest that makes it count.

`checkpoint-00000400-<hash>.safetensors` is written first, then `checkpoint-00000400.json`, which names it with its
checksum. Without a manifest that fits, there is no checkpoint, so a crash at any point leaves the one before.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.transport import Vector
from podyard.engine.training.layout import Layout
from podyard.engine.training.programs import Layouts, TrainState
from podyard.engine.training.store import CheckpointStore

PREFIX = "checkpoint-"
_SUFFIX = ".json"
FORMAT = 2
_PARAMS, _STATISTICS, _SLOTS = "params/", "statistics/", "slots/"


@dataclasses.dataclass(frozen=True)
class Run:
    """What a checkpoint must have in common with the run that goes on from it."""

    recipe: str
    arguments: Mapping[str, object]
    seed: int


@dataclasses.dataclass(frozen=True)
class Loaded:
    name: str
    sha256: str
    state: TrainState


def checkpoint_name(step: int) -> str:
    return f"{PREFIX}{step:08d}"


def params_sha256(params: Mapping[str, Any]) -> str:
    """A digest of names, shapes and bits of all parameters: equal exactly for equal bits."""
    digest = hashlib.sha256()
    for name in sorted(params):
        value = np.ascontiguousarray(params[name])
        digest.update(f"{name}/{value.dtype.str}/{value.shape}/".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def params_of(layouts: Layouts, state: TrainState) -> dict[str, NDArray[np.float32]]:
    """Numpy views of the parameters, by name."""
    return layouts.params.named(np.asarray(state.params))


def save(store: CheckpointStore, run: Run, layouts: Layouts, state: TrainState) -> tuple[str, str]:
    """(name, sha256 of the tensors' file). Raises what the store raises; then the checkpoint does not count."""
    params = params_of(layouts, state)
    tensors = {_PARAMS + name: value for name, value in params.items()}
    for name, value in layouts.statistics.named(np.asarray(state.statistics)).items():
        tensors[_STATISTICS + name] = value
    for slot, vector in state.slots.items():
        for name, value in layouts.params.named(np.asarray(vector)).items():
            tensors[f"{_SLOTS}{slot}/{name}"] = value
    data = safetensors.numpy.save(tensors)
    sha256 = hashlib.sha256(data).hexdigest()
    name = checkpoint_name(state.step)
    # The hash in the name: a file that an old manifest speaks of is never written over.
    tensors_name = f"{name}-{sha256[:12]}.safetensors"
    manifest = {
        "format": FORMAT,
        "step": state.step,
        "recipe": run.recipe,
        "arguments": dict(run.arguments),
        "seed": run.seed,
        "tensors": tensors_name,
        "tensorsBytes": len(data),
        "tensorsSha256": sha256,
        "paramsSha256": params_sha256(params),
    }
    store.put(tensors_name, data)
    store.put(name + _SUFFIX, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return name, sha256


def load(store: CheckpointStore, name: str, run: Run, layouts: Layouts) -> Loaded:
    """The checkpoint `name`, checked. Raises PodyardError NOT_FOUND when it is not there, DATA_LOSS when it is torn or
    was changed, FAILED_PRECONDITION when it is another run's or another model's."""
    manifest = _read_manifest(store, name)
    try:
        data = store.get(manifest["tensors"])
    except PodyardError as error:
        raise _torn(name, "its tensors are missing") from error
    if hashlib.sha256(data).hexdigest() != manifest["tensorsSha256"]:
        raise _torn(name, f"its {len(data)} bytes do not have the checksum of the manifest")
    found = Run(manifest["recipe"], manifest["arguments"], manifest["seed"])
    if (found.recipe, found.arguments, found.seed) != (run.recipe, dict(run.arguments), run.seed):
        raise PodyardError(Code.FAILED_PRECONDITION, f"{name} is of another run: {found}, not {run}")
    return Loaded(name, manifest["tensorsSha256"], _state(name, manifest["step"], data, layouts))


def load_newest(
    store: CheckpointStore, run: Run, layouts: Layouts, log: Callable[[str], None], not_after: str | None = None
) -> Loaded | None:
    """The newest checkpoint that is whole, or None. What is skipped is said to `log`.

    `not_after`: the name of the newest one to consider.
    """
    names = [name.removesuffix(_SUFFIX) for name in store.list(PREFIX) if name.endswith(_SUFFIX)]
    for name in sorted(names, reverse=True):
        if not_after is not None and name > not_after:
            continue
        try:
            return load(store, name, run, layouts)
        except PodyardError as error:
            if error.code not in (Code.DATA_LOSS, Code.NOT_FOUND):
                raise
            log(f"skipped {name}: {error.message}")
    return None


def _read_manifest(store: CheckpointStore, name: str) -> dict[str, Any]:
    text = store.get(name + _SUFFIX)
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise _torn(name, "its manifest is not JSON") from error
    kinds = {"step": int, "recipe": str, "arguments": dict, "seed": int, "tensors": str, "tensorsSha256": str}
    if not isinstance(manifest, dict) or any(not isinstance(manifest.get(key), kind) for key, kind in kinds.items()):
        raise _torn(name, "its manifest is incomplete")
    if manifest.get("format") != FORMAT:
        raise PodyardError(Code.FAILED_PRECONDITION, f"{name} has format {manifest.get('format')}, not {FORMAT}")
    return manifest


def _state(name: str, step: int, data: bytes, layouts: Layouts) -> TrainState:
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise _torn(name, "its tensors cannot be read") from error

    def vector(layout: Layout, prefix: str) -> Vector:
        named = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            return layout.of_named(named)
        except PodyardError as error:
            raise PodyardError(Code.FAILED_PRECONDITION, f"{name} is of another model: {error.message}") from error

    slots = dict.fromkeys(key.split("/")[1] for key in tensors if key.startswith(_SLOTS))
    return TrainState(
        step,
        vector(layouts.params, _PARAMS),
        vector(layouts.statistics, _STATISTICS),
        {slot: vector(layouts.params, f"{_SLOTS}{slot}/") for slot in slots},
    )


def _torn(name: str, why: str) -> PodyardError:
    return PodyardError(Code.DATA_LOSS, f"checkpoint {name} is damaged: {why}")
