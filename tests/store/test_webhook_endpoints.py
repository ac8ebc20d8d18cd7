"""Webhooks of a project, on both databases: what they are told, once each, and what happens when
nobody answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import delete, update

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.platform import webhook_endpoints, webhooks
from podyard.db.platform import state_changes as change_rows
from podyard.db.platform import webhooks as rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import webhook_endpoints as endpoints_table
from podyard.db.tables.billing import webhooks as webhooks_table
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.webhook import WEBHOOK_EVENTS, WebhookRequest, event_of
from tests.builders import PROJECT, Play

URL = "http://127.0.0.1:9/hook"


def _set(play: Play, *events: str, name: str = "hook", url: str = URL) -> bool:
    act = webhook_endpoints.set_endpoint
    return play.database.run(lambda uow: act(uow, PLATFORM, PROJECT, name, url, events))[1]


def _deliveries(play: Play, name: str = "hook") -> list[WebhookRequest]:
    return play.database.read(
        lambda uow: webhook_endpoints.deliveries(uow, PLATFORM, PROJECT, name)
    )


def _said(play: Play) -> list[tuple[str, str]]:
    """(event, node) of each delivery, the oldest first."""
    bodies = [json.loads(one.body) for one in reversed(_deliveries(play))]
    return [(body["event"], body["resource"].rpartition("/")[2]) for body in bodies]


def _make_node(play: Play, node_id: str) -> None:
    play.create(node_id)
    play.turn()


def test_what_happens_after_it_was_set_is_told_once(play: Play) -> None:
    _make_node(play, "before")
    assert _set(play, "node.ready", "node.deleted")
    _make_node(play, "after")
    assert _said(play) == [("node.ready", "after")]
    for _ in range(3):
        play.turn()
    assert _said(play) == [("node.ready", "after")]
    assert not play.database.read(rows.any_to_look_at)  # else the loop never rests


def test_a_change_that_is_committed_late_is_told_and_no_other_one_twice(play: Play) -> None:
    """PostgreSQL may commit a smaller number later: the endpoint has gone by it then."""
    _set(play, "node.ready")
    first = play.database.read(change_rows.last_seq)
    _make_node(play, "n")
    values = {"looked_seq": play.database.read(change_rows.last_seq)}
    play.database.run(lambda uow: uow.execute(delete(webhooks_table)))  # as if it had not been seen
    play.database.run(lambda uow: uow.execute(update(endpoints_table).values(**values)))
    _make_node(play, "m")
    assert _said(play) == [("node.ready", "n"), ("node.ready", "m")]
    assert first < values["looked_seq"]


def test_it_is_sent_again_with_waits_and_given_up(play: Play, clock: ManualClock) -> None:
    _set(play, "*")
    sent = play.database.run(
        lambda uow: webhook_endpoints.send_test(uow, PLATFORM, PROJECT, "hook")
    )
    for wait in (*webhooks.WAITS_SECONDS, None):
        tried = play.database.run(lambda uow: webhooks.claim(uow, sent))
        assert tried is not None
        play.database.run(lambda uow, tried=tried: webhooks.finish(uow, tried, False, "503"))  # type: ignore[misc]
        assert play.database.run(lambda uow: webhooks.claim(uow, sent)) is None
        clock.advance(wait or 0.0)
    (delivery,) = _deliveries(play)
    assert (delivery.next_try, delivery.delivered, delivery.tries) == (
        None,
        False,
        webhooks.TRIES_MAX,
    )
    assert delivery.outcome == f"given up after {webhooks.TRIES_MAX} tries: 503"


def test_while_too_many_wait_events_are_shown_and_not_sent(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "WAITING_MAX", 1)
    _set(play, "node.ready")
    _make_node(play, "a")
    _make_node(play, "b")
    newest, oldest = _deliveries(play)
    assert (oldest.next_try is None, newest.next_try) == (False, None)
    assert newest.outcome == "not sent: 1 requests to this endpoint wait already"


def test_old_deliveries_are_removed_and_those_that_wait_are_not(
    play: Play, clock: ManualClock
) -> None:
    _set(play, "*")
    sent = play.database.run(
        lambda uow: webhook_endpoints.send_test(uow, PLATFORM, PROJECT, "hook")
    )

    def prune(uow: UnitOfWork) -> int:
        return rows.remove_old(uow, uow.real_now.plus_seconds(-60), 100)

    clock.advance(100)
    assert play.database.run(prune) == 0
    tried = play.database.run(lambda uow: webhooks.claim(uow, sent))
    assert tried is not None and play.database.run(
        lambda uow: webhooks.finish(uow, tried, True, "204")
    )
    assert play.database.run(prune) == 1


@pytest.mark.parametrize(
    "name, url, events, text",
    [
        ("hook", URL, ("job.exploded",), "unknown event 'job.exploded': use job.submitted"),
        ("hook", URL, (), "events must not be empty"),
        ("Hook!", URL, ("*",), "name"),
        ("hook", "http://169.254.169.254/", ("*",), "a link-local address or a metadata server"),
    ],
)
def test_bad_input_is_refused(
    play: Play, name: str, url: str, events: tuple[str, ...], text: str
) -> None:
    with pytest.raises(PodyardError) as refused:
        _set(play, *events, name=name, url=url)
    assert text in refused.value.message


def test_limits_and_rights(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_endpoints, "ENDPOINTS_MAX", 1)
    assert _set(play, "*")
    assert not _set(play, "job.failed")  # changed
    with pytest.raises(PodyardError, match="at most 1 webhooks"):
        _set(play, "*", name="other")
    viewer = Principal("v", {PROJECT: frozenset({"tpu.viewer"})})
    acts: tuple[Any, ...] = (
        webhook_endpoints.get,
        webhook_endpoints.deliveries,
        webhook_endpoints.send_test,
    )
    for act in (*acts, webhook_endpoints.remove):
        with pytest.raises(PodyardError, match="denied"):
            play.database.run(lambda uow, act=act: act(uow, viewer, PROJECT, "hook"))  # type: ignore[misc]
    play.database.run(lambda uow: webhook_endpoints.remove(uow, PLATFORM, PROJECT, "hook"))
    with pytest.raises(PodyardError, match="not found"):
        _deliveries(play)


def test_every_event_is_of_a_change() -> None:
    assert all(event_of(kind, state) == event for event, (kind, state) in WEBHOOK_EVENTS.items())
    assert event_of("node", "CREATING") is None
