"""The SavedModel of an export, message by message; tests/clients/models has TensorFlow load one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export as jax_export

from podyard.base.errors import PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.domain.recipes import check_arguments
from podyard.engine import saved_model
from podyard.engine.exported import ExportFiles, read_files
from podyard.engine.saved_model import saved_model_of
from podyard.engine.training.store import FileStore
from tests.unit.engine.replica_gang import Alone, Recorder, spec_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExportFiles:
    """The export of digits-cnn after two steps."""
    from podyard.base.clock import OsClock
    from podyard.engine.executor import run_replica

    folder = tmp_path_factory.mktemp("export")
    spec = spec_of(
        steps=2,
        arguments=check_arguments("digits-cnn", {}),
        training=TrainingSettings(export_at_end=True),
    )
    run_replica(spec, Alone(), Recorder(), FileStore(folder), None, "127.0.0.1:0", OsClock())
    return read_files(folder / "export")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a message's fields: numbers, and bytes."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        value, at = _number(message, at)
        assert key & 7 in (0, 2)
        if key & 7 == 2:
            at += value
            yield key >> 3, message[at - value : at]
        else:
            yield key >> 3, value


def _all(message: bytes, number: int) -> list[Any]:
    return [value for own, value in _fields(message) if own == number]


def _entries(message: bytes, number: int) -> dict[str, bytes]:
    """A field that is a map."""
    entries = (dict(_fields(entry)) for entry in _all(message, number))
    return {entry[1].decode(): entry[2] for entry in entries}


def _nodes(data: bytes) -> dict[str, bytes]:
    (meta,) = _all(data, 2)
    (graph,) = _all(meta, 2)
    return {_all(node, 1)[0].decode(): node for node in _all(graph, 1)}


def test_the_signature_names_the_inputs_and_the_answers(files: ExportFiles) -> None:
    data = saved_model_of(files)
    (meta,) = _all(data, 2)
    assert _all(_all(meta, 1)[0], 4) == [b"serve"]
    signature = _entries(meta, 5)["serving_default"]
    (name, info), *others = _entries(signature, 1).items()
    assert not others and name == "image"
    assert _all(info, 1)[0].decode().removesuffix(":0") in _nodes(data)
    sizes = [_all(dimension, 1)[0] for dimension in _all(_all(info, 3)[0], 2)]
    assert sizes == [2**64 - 1, 8, 8, 1]  # any number of examples
    assert list(_entries(signature, 2)) == ["answers"]


def test_the_graph_has_the_parameters_and_the_module_in_an_old_version(files: ExportFiles) -> None:
    nodes = _nodes(saved_model_of(files))
    constants = [node for node in nodes.values() if _all(node, 2) == [b"Const"]]
    contents = [_all(_all(_entries(node, 5)["value"], 8)[0], 4)[0] for node in constants]
    params = files.tensors[0]
    assert contents == [params[name].tobytes() for name in sorted(params)]
    attributes = _entries(nodes["answer"], 5)
    (module,) = _all(attributes["module"], 2)
    assert b"StableHLO_v0.14.0" in module[:32]
    assert str(Path(__file__).parents[4]).encode() not in module  # no place of our source
    platforms = _all(_all(attributes["platforms"], 1)[0], 2)
    assert platforms == [b"CPU", b"TPU", b"CUDA"]
    inputs = [name.decode() for name in _all(nodes["answer"], 3)]
    assert inputs == list(nodes)[:-1]


def test_the_program_lowers_for_cpu_cuda_and_tpu(files: ExportFiles) -> None:
    """The lowering alone: no GPU runs it here."""
    image = jax.ShapeDtypeStruct((4, 8, 8, 1), np.float32)
    for platform in ("cpu", "cuda", "tpu"):
        lowered = jax_export.export(jax.jit(files.program.call), platforms=(platform,))(
            *files.tensors, {"image": image}
        )
        assert lowered.platforms == (platform,)
        text = lowered.mlir_module()
        assert text.count("= stablehlo.convolution") >= 2 and "stablehlo.dot_general" in text


def test_what_a_saved_model_cannot_hold_is_refused(
    files: ExportFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {name: value.astype(np.complex64) for name, value in files.tensors[0].items()}
    with pytest.raises(PodyardError, match="no tensors of type complex64"):
        saved_model_of(dataclasses.replace(files, tensors=(odd, {})))
    monkeypatch.setattr(saved_model, "PARAMETERS_BYTES_MAX", 1000)
    with pytest.raises(PodyardError, match="at most 1000 bytes of parameters, and the model has"):
        saved_model_of(files)
