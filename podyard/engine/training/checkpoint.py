"""Checkpoints: all tensors in one safetensors file, and a manifest that makes it count.

The tensors are written first, under the name that the job's pattern gives, then
`checkpoint-00000400.json` of the step, which names them with their checksum. Without a manifest
that fits, there is no checkpoint, so a crash at any point leaves the one before. Going away, the
manifest is first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.layout import ParameterLayout, SlotLayout
from podyard.engine.training.order import Position
from podyard.engine.training.programs import Layouts, TrainState
from podyard.engine.training.record import RunRecord
from podyard.engine.training.store import CheckpointStore

_PREFIX, _TENSORS = "checkpoint-", ".safetensors"
_MANIFEST = re.compile(rf"{_PREFIX}(\d+)\.json")
FORMAT = 3
_PARAMS, _STATISTICS, _SLOTS = "params/", "statistics/", "slots/"
_KINDS: Mapping[str, type] = {
    "step": int,
    "position": dict,
    "record": dict,
    "recipe": str,
    "arguments": dict,
    "seed": int,
    "tensors": str,
    "tensorsSha256": str,
}


@dataclasses.dataclass(frozen=True)
class RunIdentity:
    """The identity that a checkpoint and the run that goes on from it must share."""

    recipe: str
    arguments: Mapping[str, object]
    seed: int


@dataclasses.dataclass(frozen=True)
class Loaded:
    sha256: str
    state: TrainState
    record: RunRecord


@dataclasses.dataclass(frozen=True)
class Saved:
    name: str
    sha256: str


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
    return layouts.params.by_name(np.asarray(state.params))


def save(
    store: CheckpointStore,
    run: RunIdentity,
    layouts: Layouts,
    state: TrainState,
    record: RunRecord,
    name: str,
) -> Saved:
    """`name`: of the tensors' file. Another one of this name is not written over: its manifest may
    be all that counts; then this one's name has its checksum behind it. Raises what the store
    raises; then the checkpoint does not count.
    """
    params = params_of(layouts, state)
    tensors = {_PARAMS + key: value for key, value in params.items()}
    for key, value in layouts.statistics.by_name(np.asarray(state.statistics)).items():
        tensors[_STATISTICS + key] = value
    for key, value in layouts.slots.by_name(state.slots).items():
        tensors[_SLOTS + key] = value
    data = safetensors.numpy.save(tensors)
    sha256 = hashlib.sha256(data).hexdigest()
    if _sha256_of(store, name + _TENSORS) not in (None, sha256):
        name = f"{name}-{sha256[:12]}"
    manifest = {
        "format": FORMAT,
        "step": state.step,
        "position": dataclasses.asdict(state.position),
        "record": dataclasses.asdict(record),
        "recipe": run.recipe,
        "arguments": dict(run.arguments),
        "seed": run.seed,
        "tensors": name + _TENSORS,
        "tensorsBytes": len(data),
        "tensorsSha256": sha256,
        "paramsSha256": params_sha256(params),
    }
    store.put(name + _TENSORS, data)
    store.put(_manifest_name(state.step), json.dumps(manifest, indent=1, sort_keys=True).encode())
    return Saved(name, sha256)


def prune(
    store: CheckpointStore, step: int, keep: int, best_step: int, resumable_step: float
) -> list[int]:
    """Takes away what is older than the newest `keep` (0: nothing is), but not the best one (step
    0: there is none),
    and what was made of steps after `step` by a run that was given up. Returns the steps whose
    checkpoints are gone, ascending.

    What is as new as `resumable_step` stays: while nobody hears of newer ones, the next gang needs
    it."""
    known = steps(store)
    ahead = [other for other in known if other > step]
    candidates = known[: len(known) - len(ahead)][:-keep] if keep else []
    older = [other for other in candidates if other != best_step and other < resumable_step]
    gone = [*older, *ahead]
    files = {other: _tensors_of(store, other) for other in known} if gone else {}
    for other in gone:
        store.delete(_manifest_name(other))
        tensors = files.pop(other)
        if tensors is not None and tensors not in files.values():
            store.delete(tensors)
    return gone


def steps(store: CheckpointStore) -> list[int]:
    """That have a manifest, ascending."""
    found = (_MANIFEST.fullmatch(name) for name in store.list(_PREFIX))
    return sorted(int(match[1]) for match in found if match)


def load(store: CheckpointStore, step: int, run: RunIdentity, layouts: Layouts) -> Loaded:
    """The checkpoint of `step`, checked. Raises PodyardError NOT_FOUND when it is not there,
    DATA_LOSS when it is torn or was changed, FAILED_PRECONDITION when it is another run's or
    another model's."""
    manifest = _read_manifest(store, step)
    try:
        data = store.get(manifest["tensors"])
    except PodyardError as error:
        raise _damage(step, "its tensors are missing") from error
    if hashlib.sha256(data).hexdigest() != manifest["tensorsSha256"]:
        raise _damage(step, f"its {len(data)} bytes do not have the checksum of the manifest")
    found = RunIdentity(manifest["recipe"], manifest["arguments"], manifest["seed"])
    if (found.recipe, found.arguments, found.seed) != (run.recipe, dict(run.arguments), run.seed):
        text = f"the checkpoint of step {step} is of another run: {found}, not {run}"
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    state = _state(step, Position(**manifest["position"]), data, layouts)
    return Loaded(manifest["tensorsSha256"], state, RunRecord.of_json(manifest["record"]))


def load_newest(
    store: CheckpointStore,
    run: RunIdentity,
    layouts: Layouts,
    log: Callable[[str], None],
    not_after: int | None = None,
) -> Loaded | None:
    """The newest checkpoint that is whole, or None. What is skipped is said to `log`.

    `not_after`: the newest step to consider.
    """
    for step in reversed(steps(store)):
        if not_after is not None and step > not_after:
            continue
        try:
            return load(store, step, run, layouts)
        except PodyardError as error:
            if error.code not in (Code.DATA_LOSS, Code.NOT_FOUND):
                raise
            log(f"skipped the checkpoint of step {step}: {error.message}")
    return None


def _manifest_name(step: int) -> str:
    return f"{_PREFIX}{step:08d}.json"


def _sha256_of(store: CheckpointStore, name: str) -> str | None:
    try:
        return hashlib.sha256(store.get(name)).hexdigest()
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None


def _tensors_of(store: CheckpointStore, step: int) -> str | None:
    try:
        return str(_read_manifest(store, step)["tensors"])
    except PodyardError:
        return None


def _read_manifest(store: CheckpointStore, step: int) -> dict[str, Any]:
    text = store.get(_manifest_name(step))
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise _damage(step, "its manifest is not JSON") from error
    if not isinstance(manifest, dict):
        raise _damage(step, "its manifest is not an object")
    if manifest.get("format") != FORMAT:
        raise PodyardError(
            Code.FAILED_PRECONDITION,
            f"the checkpoint of step {step} has format {manifest.get('format')}, not {FORMAT}",
        )
    if (
        any(not isinstance(manifest.get(key), kind) for key, kind in _KINDS.items())
        or manifest["step"] != step
    ):
        raise _damage(step, "its manifest is incomplete")
    return manifest


def _state(step: int, position: Position, data: bytes, layouts: Layouts) -> TrainState:
    try:
        tensors = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError) as error:
        raise _damage(step, "its tensors cannot be read") from error

    def of(layout: ParameterLayout | SlotLayout, prefix: str) -> Any:
        named = {
            key.removeprefix(prefix): value
            for key, value in tensors.items()
            if key.startswith(prefix)
        }
        try:
            return layout.of_named(named)
        except PodyardError as error:
            text = f"the checkpoint of step {step} is of another model: {error.message}"
            raise PodyardError(Code.FAILED_PRECONDITION, text) from error

    parts = (
        of(layouts.params, _PARAMS),
        of(layouts.statistics, _STATISTICS),
        of(layouts.slots, _SLOTS),
    )
    return TrainState(step, *parts, position)


def _damage(step: int, why: str) -> PodyardError:
    return PodyardError(Code.DATA_LOSS, f"the checkpoint of step {step} is damaged: {why}")
