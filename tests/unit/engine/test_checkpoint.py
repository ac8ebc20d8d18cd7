from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.training import checkpoint
from podyard.engine.training.checkpoint import RunIdentity
from podyard.engine.training.layout import ParameterLayout, SlotLayout
from podyard.engine.training.optimizers import Adam
from podyard.engine.training.order import DataOrder, Position
from podyard.engine.training.programs import Layouts, TrainState
from podyard.engine.training.record import RunRecord, Tracked
from podyard.engine.training.store import FileStore

RUN = RunIdentity("digits-cnn", {"dropout": 0.25}, 7)
PARAMS = ParameterLayout.of(
    {"a": {"bias": np.zeros(3, np.float32), "kernel": np.zeros((2, 3), np.float32)}}
)
LAYOUTS = Layouts(
    PARAMS, ParameterLayout.of({"mean": np.zeros(2, np.float32)}), SlotLayout.of(Adam(1e-3), PARAMS)
)
RECORD = RunRecord(Tracked(0.5, 4, 1), Tracked(0.25, 8), {"val_loss": 0.75}, 12)


def state_of(step: int) -> TrainState:
    rng = np.random.default_rng(step)
    params, first, second = (
        rng.standard_normal(LAYOUTS.params.length).astype(np.float32) for _ in range(3)
    )
    statistics = rng.standard_normal(LAYOUTS.statistics.length).astype(np.float32)
    return TrainState(
        step, params, statistics, {"first": first, "second": second}, Position(2, step)
    )


def saved(store: FileStore, *steps: int) -> None:
    for step in steps:
        checkpoint.save(store, RUN, LAYOUTS, state_of(step), RECORD, f"checkpoint-{step:08d}")


def tensors_file(root: Path, step: int) -> Path:
    return root / f"checkpoint-{step:08d}.safetensors"


def test_round_trip_keeps_every_bit(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    written = checkpoint.save(store, RUN, LAYOUTS, state_of(12), RECORD, "model.03-0.75")
    loaded = checkpoint.load(store, 12, RUN, LAYOUTS)
    assert (written.name, loaded.sha256, loaded.state.step) == ("model.03-0.75", written.sha256, 12)
    assert (loaded.record, loaded.state.position) == (RECORD, Position(2, 12))
    found, kept = loaded.state, state_of(12)
    assert found.params.tobytes() == kept.params.tobytes()
    assert found.statistics.tobytes() == kept.statistics.tobytes()
    assert {slot: vector.tobytes() for slot, vector in found.slots.items()} == {
        slot: vector.tobytes() for slot, vector in kept.slots.items()
    }
    manifest = json.loads(store.get("checkpoint-00000012.json"))
    assert manifest["paramsSha256"] == checkpoint.params_sha256(
        checkpoint.params_of(LAYOUTS, loaded.state)
    )
    assert manifest["step"] == 12 and manifest["seed"] == 7


@pytest.mark.parametrize(
    "damage", ["torn", "flipped", "no tensors", "no manifest", "torn manifest"]
)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path: Path, damage: str) -> None:
    store = FileStore(tmp_path)
    saved(store, 10, 20)
    tensors, manifest = tensors_file(tmp_path, 20), tmp_path / "checkpoint-00000020.json"
    if damage == "torn":
        tensors.write_bytes(tensors.read_bytes()[:-5])
    elif damage == "flipped":
        data = bytearray(tensors.read_bytes())
        data[-1] ^= 1
        tensors.write_bytes(data)
    elif damage == "no tensors":
        tensors.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:40])
    said: list[str] = []
    loaded = checkpoint.load_newest(store, RUN, LAYOUTS, said.append, not_after=20)
    assert loaded is not None and loaded.state.step == 10
    assert len(said) == (0 if damage == "no manifest" else 1)
    assert all(line.startswith("skipped the checkpoint of step 20: ") for line in said)


def test_nothing_whole_is_none_and_a_later_one_is_not_taken(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert checkpoint.load_newest(store, RUN, LAYOUTS, pytest.fail) is None
    saved(store, 10, 20)
    loaded = checkpoint.load_newest(store, RUN, LAYOUTS, pytest.fail, not_after=15)
    assert loaded is not None and loaded.state.step == 10


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    saved(store, 10)
    for other in (
        RunIdentity("digits-cnn", {"dropout": 0.5}, 7),
        RunIdentity("digits-cnn", {"dropout": 0.25}, 8),
    ):
        with pytest.raises(PodyardError, match="another run") as caught:
            checkpoint.load_newest(store, other, LAYOUTS, pytest.fail)
        assert caught.value.code is Code.FAILED_PRECONDITION


def test_another_models_checkpoint_is_refused_with_the_tensors_that_differ(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    saved(store, 10)
    fewer = ParameterLayout.of({"a": {"bias": np.zeros(3, np.float32)}})
    other = Layouts(fewer, LAYOUTS.statistics, SlotLayout.of(Adam(1e-3), fewer))
    with pytest.raises(
        PodyardError, match="another model: tensors do not fit the model: a/kernel"
    ) as caught:
        checkpoint.load_newest(store, RUN, other, pytest.fail)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_saving_again_never_spoils_what_is_there(tmp_path: Path) -> None:
    """The same step with other bits (another attempt): the old tensors stay until the new manifest
    stands."""
    store = FileStore(tmp_path)
    saved(store, 10)
    before = tensors_file(tmp_path, 10)
    other = state_of(11)
    again = TrainState(10, other.params, other.statistics, other.slots, other.position)
    written = checkpoint.save(store, RUN, LAYOUTS, again, RECORD, "checkpoint-00000010")
    assert before.exists() and written.name == f"checkpoint-00000010-{written.sha256[:12]}"
    assert checkpoint.load(store, 10, RUN, LAYOUTS).state.params.tobytes() == other.params.tobytes()


def test_store_names_cannot_leave_the_root(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "root")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path)
    for name in (
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "./a",
        "a\\b",
        "a\x00b",
        "out/x",
        ".unfinished-1",
    ):
        with pytest.raises(PodyardError) as caught:
            store.put(name, b"")
        assert caught.value.code is Code.INVALID_ARGUMENT, name


def test_store_puts_gets_lists_and_deletes(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "not" / "yet")
    assert store.list("") == []
    store.put("b/two", b"2")
    store.put("a", b"1")
    store.put("a", b"11")
    assert (
        store.get("a") == b"11"
        and store.list("") == ["a", "b/two"]
        and store.list("b/") == ["b/two"]
    )
    store.delete("a")
    store.delete("a")
    for missing in ("a", "b", "b/two/three"):
        with pytest.raises(PodyardError) as caught:
            store.get(missing)
        assert caught.value.code is Code.NOT_FOUND


def test_data_order_is_a_function_of_seed_and_step() -> None:
    order = DataOrder(seed=3, example_count=100, global_batch=32)
    epoch = np.concatenate([order.indices(step) for step in (1, 2, 3)])
    assert len(set(epoch.tolist())) == 96  # the remainder of 4 is left out
    assert np.array_equal(order.indices(7), DataOrder(3, 100, 32).indices(7))
    assert not np.array_equal(order.indices(1), order.indices(4))
    assert not np.array_equal(order.indices(1), DataOrder(4, 100, 32).indices(1))
    with pytest.raises(PodyardError, match="larger than the 100"):
        DataOrder(3, 100, 128)
