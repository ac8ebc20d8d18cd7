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

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.programs import Layout, TrainState
from podyard.engine.training.recipe import Tensors
from podyard.engine.training.store import CheckpointStore

PREFIX = "checkpoint-"
_SUFFIX = ".json"
FORMAT = 1


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


def params_sha256(params: Tensors) -> str:
    """A digest of names, shapes and bits of all parameters: equal exactly for equal bits."""
    digest = hashlib.sha256()
    for name in sorted(params):
        value = np.ascontiguousarray(params[name])
        digest.update(f"{name}/{value.dtype.str}/{value.shape}/".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def save(store: CheckpointStore, run: Run, state: TrainState) -> tuple[str, str]:
    """(name, sha256 of the tensors' file). Raises what the store raises; then the checkpoint does not count."""
    groups = state.tensors()
    tensors = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
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
        "paramsSha256": params_sha256(groups["params"]),
    }
    store.put(tensors_name, data)
    store.put(name + _SUFFIX, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return name, sha256


def load(store: CheckpointStore, name: str, run: Run) -> Loaded:
    """The checkpoint `name`, checked. Raises PodyardError NOT_FOUND when it is not there, DATA_LOSS when it is torn or
    was changed, FAILED_PRECONDITION when it is another run's."""
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
    return Loaded(name, manifest["tensorsSha256"], _state(name, manifest["step"], data))


def load_newest(
    store: CheckpointStore, run: Run, log: Callable[[str], None], not_after: str | None = None
) -> Loaded | None:
    """The newest checkpoint that is whole, or None. What is skipped is said to `log`.

    `not_after`: the name of the newest one to consider.
    """
    names = [name.removesuffix(_SUFFIX) for name in store.list(PREFIX) if name.endswith(_SUFFIX)]
    for name in sorted(names, reverse=True):
        if not_after is not None and name > not_after:
            continue
        try:
            return load(store, name, run)
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


def _state(name: str, step: int, data: bytes) -> TrainState:
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise _torn(name, "its tensors cannot be read") from error

    def group(prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    params, first, second = group("params/"), group("adam/first/"), group("adam/second/")
    layout = Layout.of(params)
    if layout != Layout.of(first) or layout != Layout.of(second):
        raise _torn(name, "the optimizer's state does not fit the parameters")
    return TrainState(step, layout, layout.flatten(params), layout.flatten(first), layout.flatten(second))


def _torn(name: str, why: str) -> PodyardError:
    return PodyardError(Code.DATA_LOSS, f"checkpoint {name} is damaged: {why}")
