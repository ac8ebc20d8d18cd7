"""The maps of the past day: slices that were given back are drawn where they were, and are kept for
two days."""

from __future__ import annotations

import threading
from pathlib import Path

from podyard.base.clock import ManualClock
from podyard.control.compute import nodes, pods
from podyard.control.compute.pods import PodView
from podyard.db.store.unit_of_work import Database
from podyard.domain.principal import PLATFORM
from podyard.loop.retention import prune
from podyard.settings import from_environment
from tests.builders import PROJECT, ZONE, Play

POD = f"{ZONE}-v2-0"
HOUR = 3600.0


def _then(play: Play, ago_seconds: float, project: str = PROJECT) -> PodView:
    view, _ = play.database.read(
        lambda uow: pods.past(uow, play.fleet, PLATFORM, project, POD, ago_seconds)
    )
    return view


def _names(view: PodView) -> list[str]:
    return [item.node.rpartition("/")[2] for item in view.slices]


def test_a_map_shows_what_was_there_then(database: Database, clock: ManualClock) -> None:
    play = Play(database, clock)
    play.create("stays")
    play.turn(HOUR)
    play.create("goes")
    goes = _then(play, 0).slices[-1]
    play.turn(HOUR)
    play.run(nodes.delete, "goes")
    play.turn(HOUR)
    assert _names(_then(play, 0)) == ["stays"]
    assert _names(_then(play, 1.5 * HOUR)) == ["stays", "goes"]
    assert _names(_then(play, 2.5 * HOUR)) == ["stays"]
    assert _then(play, 10 * HOUR).held == 0
    then = _then(play, 1.5 * HOUR)
    assert then.slices[-1] == goes
    assert then.held == then.slices[0].chips | goes.chips and then.free & then.held == 0


def test_a_node_that_is_stopped_and_started_was_in_two_places(
    database: Database, clock: ManualClock
) -> None:
    play = Play(database, clock)
    play.create("n")
    play.turn(HOUR)
    play.run(nodes.stop, "n")
    play.turn(HOUR)
    play.run(nodes.start, "n")
    play.turn()
    play.turn(HOUR)
    assert [len(_then(play, hours * HOUR).slices) for hours in (0.5, 1.5, 2.5)] == [1, 0, 1]
    assert _then(play, 0.5 * HOUR).slices[0].slice_id != _then(play, 2.5 * HOUR).slices[0].slice_id


def test_slices_that_were_given_back_are_kept_for_two_days(
    database: Database, clock: ManualClock, tmp_path: Path
) -> None:
    play, settings = Play(database, clock), from_environment({"PODYARD_DATA": str(tmp_path)})
    play.create("n")
    play.turn(HOUR)
    play.run(nodes.delete, "n")
    play.turn(24 * HOUR)
    prune(database, settings, threading.Event())
    assert len(_then(play, 24.5 * HOUR).slices) == 1
    play.turn(25 * HOUR)
    prune(database, settings, threading.Event())
    assert len(_then(play, 49.5 * HOUR).slices) == 0
