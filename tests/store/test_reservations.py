"""Reservations and what is asked for as reserved, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import nodes, queued_resources, reservations
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.domain.reservation import ReservationUse
from tests.builders import PROJECT, ZONE, Play, request


def reserve(play: Play, name: str = "r", size: int = 4, **options: Any) -> ReservationUse:
    return play.run(reservations.create, name, "v2", size, **options)


def listed(play: Play) -> dict[str, tuple[str, int]]:
    found = play.run(reservations.list_reservations)
    return {item.reservation.reservation_id: (item.reservation.state, item.used) for item in found}


def now(play: Play) -> PlatformTime:
    return play.database.read(lambda uow: uow.now)


def test_without_a_reservation_a_node_fails_in_googles_words_and_a_queued_resource_waits(
    play: Play,
) -> None:
    ended = play.create("n", usage_class=UsageClass.RESERVED)
    assert ended.error_code == int(Code.FAILED_PRECONDITION)
    assert ended.error_message is not None
    assert ended.error_message.startswith(
        "Insufficient reserved capacity. Contact customer support to increase your"
    )
    assert play.states() == {}
    play.queue(request(usage_class=UsageClass.RESERVED))
    play.turn()
    assert play.queued().state == "WAITING_FOR_RESOURCES"
    assert "no active reservation of v2" in play.queued().wait_reason
    reserve(play)
    play.turn()
    play.turn(10)
    assert play.queued().state == "ACTIVE"
    assert play.node().spec.usage_class is UsageClass.RESERVED
    assert listed(play) == {"r": ("ACTIVE", 4)}


def test_room_is_held_while_chips_are_and_given_back_with_them(play: Play) -> None:
    assert reserve(play, size=8, units="CORES").used == 0
    play.create("a", usage_class=UsageClass.RESERVED)
    assert listed(play) == {"r": ("ACTIVE", 8)}
    assert play.create("b", usage_class=UsageClass.RESERVED).error_code == int(
        Code.FAILED_PRECONDITION
    )
    with pytest.raises(
        PodyardError, match="reservation r is in use: delete the nodes that use 8 CORES"
    ):
        play.ask(reservations.delete, "r")
    play.run(nodes.delete, "a")
    play.turn()
    assert listed(play) == {"r": ("ACTIVE", 0)}
    assert play.create("b", usage_class=UsageClass.RESERVED).error_code is None


def test_a_reservation_that_is_named_is_the_only_one_that_serves(play: Play) -> None:
    reserve(play, "a")
    reserve(play, "b")
    name = f"projects/{PROJECT}/locations/{ZONE}/reservations/b"
    play.create("n", usage_class=UsageClass.RESERVED, reservation_name=name)
    assert listed(play) == {"a": ("ACTIVE", 0), "b": ("ACTIVE", 4)}
    play.create("m", usage_class=UsageClass.RESERVED, reservation_name=name.replace("/b", "/-"))
    assert listed(play) == {"a": ("ACTIVE", 4), "b": ("ACTIVE", 4)}


def test_a_reservation_begins_and_ends_at_its_times_and_its_nodes_stay(play: Play) -> None:
    begin = now(play)
    made = reserve(play, size=8, starts=begin.plus_seconds(100), ends=begin.plus_seconds(200))
    assert made.reservation.state == "APPROVED"
    play.queue(request(usage_class=UsageClass.RESERVED))
    play.turn(99)
    assert play.queued().state == "WAITING_FOR_RESOURCES"
    play.turn(1)
    assert (play.queued().state, listed(play)) == ("PROVISIONING", {"r": ("ACTIVE", 4)})
    play.turn(100)
    assert (listed(play), play.states()) == ({"r": ("EXPIRED", 4)}, {"n": "READY"})
    assert play.create("late", usage_class=UsageClass.RESERVED).error_code == int(
        Code.FAILED_PRECONDITION
    )


def test_a_request_for_a_least_duration_is_not_placed_under_a_reservation_that_ends_sooner(
    play: Play,
) -> None:
    reserve(play, "short", ends=now(play).plus_seconds(1000))
    play.queue(request(usage_class=UsageClass.RESERVED, min_duration_seconds=3600.0))
    play.turn()
    assert play.queued().state == "WAITING_FOR_RESOURCES"
    reserve(play, "long")
    play.turn()
    assert play.queued().state == "PROVISIONING"
    assert listed(play) == {"long": ("ACTIVE", 4), "short": ("ACTIVE", 0)}


def test_reset_gives_the_room_back_and_takes_it_again(play: Play) -> None:
    reserve(play, size=8)
    play.queue(request("s", count=2, usage_class=UsageClass.RESERVED))
    play.turn()
    play.turn(10)
    play.run(queued_resources.reset, "q")
    play.turn()
    play.turn(10)
    assert (play.queued().state, listed(play)) == ("ACTIVE", {"r": ("ACTIVE", 8)})


@pytest.mark.parametrize(
    ("name", "generation", "size", "options", "text"),
    [
        ("r", "v3", 4, {}, "does not offer reserved v3"),
        ("r", "v2", 0, {}, "size of a reservation"),
        ("r", "v2", 4, {"units": "PODS"}, "use CORES or CHIPS"),
        ("R", "v2", 4, {}, "not a valid id"),
        ("r", "v2", 4, {"ends": PlatformTime(1)}, "must be in the future"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(
    play: Play, name: str, generation: str, size: int, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(PodyardError, match=text) as caught:
        play.run(reservations.create, name, generation, size, **options)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_names_are_free_again_after_deletion_and_strangers_learn_nothing(play: Play) -> None:
    reserve(play)
    with pytest.raises(PodyardError, match="already exists"):
        reserve(play)
    for name in ("r", "missing"):
        with pytest.raises(PodyardError) as caught:
            play.database.run(
                lambda u, n=name: reservations.delete(u, Principal("x", {}), PROJECT, ZONE, n)
            )  # type: ignore[misc]
        assert caught.value.code is Code.PERMISSION_DENIED
    play.ask(reservations.delete, "r")
    with pytest.raises(PodyardError, match="was not found"):
        play.ask(reservations.get, "r")
    assert reserve(play).reservation.state == "ACTIVE"
