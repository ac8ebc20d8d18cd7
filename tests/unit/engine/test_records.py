"""What a run carries apart from its numbers."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from podyard.base.errors import PodyardError
from podyard.base.training_settings import Best, EarlyStopping, TrainingSettings
from podyard.engine.training.order import DataOrder, Position
from podyard.engine.training.record import RunRecord, Tracked


def test_better_means_by_more_than_a_delta_and_nan_is_never_better() -> None:
    nothing = Tracked()
    assert nothing.after(float("nan"), 1, "min", 0.0) == Tracked(None, 0, 1)
    first = nothing.after(1.0, 1, "min", 0.1)
    assert first == Tracked(1.0, 1)
    assert first.after(0.95, 2, "min", 0.1) == Tracked(1.0, 1, 1)
    assert first.after(0.85, 2, "min", 0.1) == Tracked(0.85, 2)
    assert first.after(float("nan"), 2, "min", 0.1) == Tracked(1.0, 1, 1)
    assert first.after(1.2, 2, "max", 0.1) == Tracked(1.2, 2)
    assert first.after(1.05, 2, "max", 0.1).waited == 1
    record = RunRecord(first, nothing, {"val_loss": 1.0}, 1)
    assert RunRecord.of_json(json.loads(json.dumps(dataclasses.asdict(record)))) == record


def test_the_order_of_the_data_goes_on_in_another_size_of_batch() -> None:
    usual = DataOrder(3, 100, 32)
    assert [usual.position(step) for step in (0, 1, 3, 4)] == [
        Position(0, 0),
        Position(0, 32),
        Position(0, 96),
        Position(1, 32),
    ]
    for steps in range(9):
        resumed = DataOrder(3, 100, 32, steps, usual.position(steps))
        for step in range(steps + 1, 12):
            assert np.array_equal(resumed.indices(step), usual.indices(step))
    smaller = DataOrder(3, 100, 16, 1, usual.position(1))
    epoch = [usual.indices(1), *(smaller.indices(step) for step in range(2, 6))]
    assert (
        sorted(set(np.concatenate(epoch))) == sorted(np.concatenate(epoch))
        and len(np.concatenate(epoch)) == 96
    )
    assert smaller.position(5) == Position(0, 96) and smaller.position(6) == Position(1, 16)


def test_settings_survive_their_way_to_a_replica() -> None:
    stopping, best = EarlyStopping("val_loss", "min", 3, 0.5), Best("val_a", "max")
    settings = TrainingSettings(2, 5, 10, stopping, "m-{step}", 0, best, True)
    assert TrainingSettings.of_json(json.loads(json.dumps(settings.as_json()))) == settings
    assert (
        TrainingSettings.of_stored(json.loads(json.dumps(dataclasses.asdict(settings)))) == settings
    )
    # What a job gets that does not say, and what a run gets that is not told, are the same.
    assert (
        TrainingSettings.of_json(TrainingSettings().as_json())
        == TrainingSettings.of_json({})
        == TrainingSettings()
    )
    with pytest.raises(PodyardError, match="unknown fields of training: colour"):
        TrainingSettings.of_json({"colour": 1})
