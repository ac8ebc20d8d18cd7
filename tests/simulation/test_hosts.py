"""Hosts in a simulated world start on request and end with their node, and fsck finds nothing
wrong."""

from __future__ import annotations

from podyard.control.checks import fsck
from podyard.pricing.current_card import default_rate_card
from podyard.simulation import actions
from podyard.simulation.scenario import Event, fleet_for
from podyard.simulation.world import PROJECT_NAMES, World

CREATED_SECONDS = 200.0  # after which a node of the simulated fleet is READY


def test_hosts_live_and_end_with_their_node_and_fsck_finds_nothing() -> None:
    world = World(1, fleet_for(4), 8)
    try:
        zone = sorted(world.fleet.zones)[0]
        kind = next(kind for kind in world.fleet.offered_types(zone) if kind.host_count > 1)
        node = {"project": PROJECT_NAMES[0], "zone": zone, "type": kind.name, "usage": "on-demand"}
        actions.apply(world, Event(0.0, "create", "n", node))
        world.advance(CREATED_SECONDS)
        actions.apply(world, Event(CREATED_SECONDS, "materialise", "n"))
        world.settle()
        assert _lines(world) == {
            ("materialise", "STARTING"): kind.host_count,
            ("run", "RUNNING"): kind.host_count,
        }
        actions.apply(world, Event(CREATED_SECONDS, "delete", "n"))
        world.advance(2 * CREATED_SECONDS)
        world.settle()
        assert _lines(world)[("exit", "VIRTUAL")] == kind.host_count
        assert (
            world.database.read(lambda uow: fsck.check(uow, world.fleet, default_rate_card())) == []
        )
    finally:
        world.close()


def _lines(world: World) -> dict[tuple[str, str], int]:
    found = world.rows(
        "SELECT event, to_state, count(*) FROM state_changes WHERE machine = 'host' GROUP BY "
        "event, to_state"
    )
    return {(event, state): count for event, state, count in found}
