"""Labels at the time of use, and who created what: facts of the events of nodes; on both
databases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, text

from podyard import migrations
from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import Amount
from podyard.control.billing import budgets, dashboard, explorer, invoices, snapshots
from podyard.control.checks import fsck
from podyard.control.compute import nodes
from podyard.control.jobs import jobs
from podyard.db.billing import usage_events as usage_rows
from podyard.db.jobs import jobs as job_rows
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.billing import usage_events
from podyard.domain.job import JobRequest
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.usage import BilledResource, LabelPeriod, label_periods
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.invoicing import PARTS_PER_UNIT
from tests.builders import PROJECT, ZONE, Play, node_spec, request
from tests.store.test_older_data import CLOCK, JOB, NODE, insert_row

ANN = Principal("ann@x.org", {PROJECT: frozenset({"owner"})})


def _told(play: Play) -> list[tuple[int, str, Any, str | None]]:
    """(seq, state, labels, created_by) of all usage events, in order."""
    query = select(usage_events).order_by(usage_events.c.seq)
    rows = play.database.read(lambda uow: uow.all(query))
    return [(row["resource_seq"], row["state"], row["labels"], row["created_by"]) for row in rows]


def _patch(play: Play, labels: Mapping[str, str], name: str = "n") -> None:
    play.ask(nodes.patch, name, {"labels": labels})


def _fact(play: Play) -> BilledResource:
    """Return what there is of the one node, by both ways to it."""
    (found,) = play.database.read(lambda uow: usage_rows.facts(uow, PROJECT)).values()
    ((other, _),) = play.database.read(lambda uow: list(usage_rows.histories(uow, PROJECT)))
    (third,) = play.database.read(lambda uow: usage_rows.facts(uow, PROJECT, [found.key])).values()
    assert found == other == third
    return found


def _check(play: Play) -> None:
    assert play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card())) == []


def test_a_change_of_labels_is_an_event_in_the_state_that_the_node_has(play: Play) -> None:
    play.create("n", labels={"team": "a"})
    assert _told(play) == [(1, "CREATING", {"team": "a"}, "podyard"), (2, "READY", None, None)]
    _patch(play, {"team": "b"})
    _patch(play, {"team": "b"})  # the same ones again are no change
    play.ask(nodes.patch, "n", {"description": "x"})
    assert _told(play)[2:] == [(3, "READY", {"team": "b"}, None)]
    last = play.database.read(
        lambda uow: uow.all(select(state_changes).order_by(state_changes.c.seq.desc()))
    )
    relabelled = next(row for row in last if row["machine"] == "node")
    assert (relabelled["event"], relabelled["from_state"], relabelled["to_state"]) == (
        "relabel",
        "READY",
        "READY",
    )
    assert relabelled["reason"] == "labels: team=b"
    play.run(nodes.stop, "n")
    play.turn()
    play.turn(100)
    _patch(play, {})
    assert _told(play)[-1][1:] == ("STOPPED", {}, None)
    _check(play)


def test_labels_count_from_the_first_whole_second_after_they_were_given(play: Play) -> None:
    play.create("n", labels={"team": "a"})
    start = _fact(play).labels[0].from_second
    now = play.database.read(lambda uow: uow.now).nanos
    play.wait(10 - now % 10**9 / 1e9)  # a whole second
    begin = play.database.read(lambda uow: uow.now).nanos // 10**9
    _patch(play, {"team": "b"})
    play.wait(5.5)
    _patch(play, {"team": "c"})
    play.wait(0.2)
    _patch(play, {"team": "d"})  # twice in one second: the last one counts
    expected = (
        LabelPeriod(start, {"team": "a"}),
        LabelPeriod(begin, {"team": "b"}),
        LabelPeriod(begin + 6, {"team": "d"}),
    )
    assert _fact(play).labels == expected
    play.wait(10)
    _patch(play, {"team": "e"})
    _patch(play, {"team": "d"})  # given back within a second: nothing has changed
    assert _fact(play).labels == expected
    _check(play)


def test_seconds_are_cut_where_labels_change() -> None:
    a, b, c = {"team": "a"}, {"team": "b"}, {"team": "c"}
    node = BilledResource(
        "k",
        "n",
        "z",
        "v2-8",
        node_spec().usage_class,
        "ann",
        (LabelPeriod(10, a), LabelPeriod(20, b)),
    )
    assert list(label_periods(node, range(5, 30))) == [(range(5, 20), a), (range(20, 30), b)]
    assert list(label_periods(node, range(20, 30))) == [(range(20, 30), b)]
    assert list(label_periods(node, range(12, 20))) == [(range(12, 20), a)]
    assert list(label_periods(node, range(30, 40))) == [(range(30, 40), b)]
    assert list(label_periods(node, range(20, 20))) == []
    three = BilledResource(
        "k", "n", "z", "v2-8", node.usage_class, labels=(*node.labels, LabelPeriod(25, c))
    )
    assert [(len(part), labels) for part, labels in label_periods(three, range(26))] == [
        (20, a),
        (5, b),
        (1, c),
    ]
    none = BilledResource("k", "n", "z", "v2-8", node.usage_class)
    assert list(label_periods(none, range(3, 5))) == [(range(3, 5), {})]


def test_who_created_a_node_is_who_asked_for_it_or_for_what_it_was_made_for(play: Play) -> None:
    play.register()
    play.database.run(
        lambda uow: nodes.create(uow, play.fleet, ANN, PROJECT, ZONE, "n", node_spec())
    )
    play.queue(request("q-node"))
    job = play.database.run(
        lambda uow: jobs.create(
            uow, play.fleet, ANN, PROJECT, ZONE, "j", JobRequest(recipe="digits-cnn"), node_spec()
        )
    )
    assert job.created_by == "ann@x.org"
    play.turn()
    creators = {node.node_id: node.created_by for node in play.nodes()}
    assert creators == {"n": "ann@x.org", "q-node": "podyard", "j": "ann@x.org"}
    facts = play.database.read(lambda uow: usage_rows.facts(uow, PROJECT)).values()
    assert {fact.name.rsplit("/", 1)[-1]: fact.created_by for fact in facts} == creators


def _budget(play: Play, name: str, **fields: Any) -> None:
    wanted = budgets.BudgetRequest(**{"amount": "10", **fields})
    play.database.run(
        lambda uow: budgets.set_budget(uow, play.fleet, PLATFORM, PROJECT, name, wanted)
    )


def _spent(play: Play) -> dict[str, str]:
    """Return what each budget has spent, as the API and as the console say."""

    def both(uow: UnitOfWork) -> list[dict[str, str]]:
        found = snapshots.snapshot(uow, default_rate_card(), PLATFORM, PROJECT)
        ways = (budgets.list_budgets(uow, PLATFORM, PROJECT), dashboard.budgets_of(uow, found))
        return [{one.budget.name: one.spent.text(5) for one in way} for way in ways]

    api, console = play.database.read(both)
    assert api == console
    return api


def test_a_budget_of_a_label_counts_what_was_used_under_it(play: Play) -> None:
    _budget(play, "mine", scope="label:team=a", actions=["stop"])
    _budget(play, "others", scope="label:team=b", amount="100")
    play.create("n", labels={"team": "a"})
    play.turn(4000)
    _patch(play, {"team": "b"})
    play.turn(20_000)
    assert _spent(play) == {"mine": "5.00000", "others": "25.00000"}
    assert play.states() == {"n": "READY"}
    _patch(play, {"team": "a"})
    play.turn(86_400)
    assert play.states() == {"n": "STOPPED"}  # 4000 s and 4000 s at 4.50 an hour
    assert _spent(play) == {"mine": "10.00000", "others": "25.00000"}
    play.create("m", labels={"team": "b"})
    _patch(play, {"team": "a"}, "m")
    play.turn(1)
    # it has come to a budget that is used up
    assert play.states() == {"n": "STOPPED", "m": "STOPPED"}
    _check(play)


def test_a_budget_of_a_user_counts_stops_and_refuses_what_that_user_has_created(play: Play) -> None:
    _budget(play, "ann", scope="user:ann@x.org", actions=["stop"])

    def of_ann(name: str) -> None:
        play.database.run(
            lambda uow: nodes.create(uow, play.fleet, ANN, PROJECT, ZONE, name, node_spec())
        )

    of_ann("hers")
    play.create("n")
    play.turn(86_400)
    assert play.states() == {"hers": "STOPPED", "n": "READY"}
    assert _spent(play) == {"ann": "10.00000"}
    with pytest.raises(PodyardError, match="budget ann of projects/demo is used up"):
        of_ann("more")
    play.create("m")
    with pytest.raises(PodyardError, match="label:KEY=VALUE, user:EMAIL"):
        _budget(play, "bad", scope="user:")


def _explored(play: Play, group: str, first: str, last: str) -> dict[str, Amount]:
    """Return what the explorer says of each group, by the time of use."""

    def body(uow: UnitOfWork) -> explorer.Explored:
        found = snapshots.snapshot(uow, default_rate_card(), PLATFORM, PROJECT)
        fields = {"from": first, "to": last, "group": group, "bucket": "month"}
        return explorer.ask(
            uow, found, explorer.to_question(found.account, found.as_of, fields, ())
        )

    answer = play.database.read(body)
    assert sum(row.gross for row in answer.rows) == answer.total.gross
    return {row.name: Amount(int(row.net)) for row in answer.rows}


def _until(play: Play, text: str) -> None:
    now = play.database.read(lambda uow: uow.now)
    play.turn(PlatformTime.from_rfc3339(text).nanos_since(now) / 1e9)


def test_labels_that_move_divide_the_bill_and_change_nothing_of_it(play: Play) -> None:
    play.create("n", labels={"team": "a"})  # READY at 00:00:10
    play.create("still", labels={"team": "a"})  # READY at 00:00:20
    _until(play, "2026-03-11T00:00:00.250Z")
    _patch(play, {"team": "b"})  # from 00:00:01 on
    _until(play, "2026-03-21T12:00:00Z")
    play.run(nodes.stop, "n")
    play.turn()
    play.turn(100)
    _patch(play, {"team": "c"})
    play.run(nodes.start, "n")
    play.turn(86_400)
    begun = play.node().ready_since
    assert begun is not None
    _until(play, "2026-04-01T00:00:00Z")
    _patch(play, {"team": '=HYPERLINK("<b>")'})  # a month's end is the first second of the next one
    _until(play, "2026-04-02T00:00:00Z")
    _patch(play, {"team": "late"})
    month = PlatformTime.from_rfc3339("2026-04-01T00:00:00Z").nanos // 10**9
    seconds = {
        "a": 10 * 86_400 + 1 - 10 + 31 * 86_400 - 20,
        "b": 10 * 86_400 + 12 * 3_600 - 1,
        "c": month - begun.nanos // 10**9,
    }
    expected = {name: Amount.of_hourly(4_500_000_000, count) for name, count in seconds.items()}
    march = _explored(play, "label:team", "2026-03-01", "2026-03-31")
    assert march == expected
    assert (
        sum(amount.parts for amount in march.values())
        == _explored(play, "project", "2026-03-01", "2026-03-31")[PROJECT].parts
    )
    first = _explored(play, "label:team", "2026-04-01", "2026-04-01")
    assert first == {
        name: Amount.of_hourly(4_500_000_000, 86_400) for name in ("a", '=HYPERLINK("<b>")')
    }
    _until(play, "2026-04-10T00:00:00Z")
    (issued,) = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert (
        json.loads(issued.document)["subtotal"]
        == f"{sum(a.parts for a in expected.values()) / PARTS_PER_UNIT:.2f}"
    )
    _patch(play, {"team": "z"})
    _patch(play, {"team": "z"}, "still")
    play.turn(86_400)
    (after,) = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert (after.document, after.sha256) == (issued.document, issued.sha256)
    assert _explored(play, "label:team", "2026-03-01", "2026-03-31") == expected
    _check(play)


def test_two_callers_at_once_make_two_changes_one_after_the_other(play: Play) -> None:
    play.create("n", labels={"team": "start"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: _patch(play, {"team": f"t{index}"}), range(24)))
    told = _told(play)[2:]
    assert [seq for seq, *_ in told] == list(range(3, 27))
    assert sorted(str(labels["team"]) for _, _, labels, _ in told) == sorted(
        f"t{index}" for index in range(24)
    )
    assert play.node().spec.labels == told[-1][2]
    assert len(_fact(play).labels) == 2  # all in one second: the last one counts
    _check(play)


EVENT = {
    "project": "p", "resource_key": "n", "resource_name": "projects/p/locations/z/nodes/a",
    "zone": "z",
    "accelerator_type": "v3-32", "usage_class": "on-demand", "billable": False,
}  # fmt: skip
CHANGE = {
    "machine": "node", "resource_key": "n", "resource_name": "projects/p/locations/z/nodes/a",
    "project": "p",
    "event": "create", "from_state": "", "to_state": "CREATING", "at": 1, "reason": "",
}  # fmt: skip


def _fill(uow: UnitOfWork) -> None:
    insert_row(uow, "clock", CLOCK)
    insert_row(uow, "nodes", {**NODE, "spec": json.dumps({"labels": {"team": "a\"'<b>"}})})
    insert_row(
        uow,
        "nodes",
        {**NODE, "node_key": "m", "node_id": "b", "live_name": None, "queued_resource_key": "q"},
    )
    insert_row(uow, "jobs", JOB)
    for key in ("n", "m"):
        for seq in (1, 2):
            event = {
                **EVENT,
                "resource_key": key,
                "event_id": f"{key}{seq}",
                "resource_seq": seq,
                "state": "X",
                "at": 1,
            }
            insert_row(uow, "usage_events", event)
    for key, actor in (("n", "ann@x.org"), ("m", "loop"), ("q", "ben@x.org")):
        insert_row(
            uow,
            "state_changes",
            {**CHANGE, "resource_key": key, "event_id": key, "version": 1, "actor": actor},
        )


def test_older_data_get_the_labels_and_creators_that_are_known(empty_database: Database) -> None:
    migrations.migrate(empty_database.engine, "0014")
    empty_database.run(_fill)
    migrations.upgrade(empty_database)
    query = select(usage_events.c.event_id, usage_events.c.labels, usage_events.c.created_by)
    rows = empty_database.read(
        lambda uow: [tuple(row) for row in uow.execute(query.order_by(usage_events.c.event_id))]
    )
    assert rows == [
        ("m1", {}, "ben@x.org"),
        ("m2", None, None),
        ("n1", {"team": "a\"'<b>"}, "ann@x.org"),
        ("n2", None, None),
    ]
    # nobody knows any more
    assert empty_database.read(lambda uow: job_rows.get(uow, "j")).created_by == ""
    facts = empty_database.read(lambda uow: usage_rows.facts(uow, "p"))
    assert {key: (fact.created_by, dict(fact.labels[0].labels)) for key, fact in facts.items()} == {
        "m": ("ben@x.org", {}),
        "n": ("ann@x.org", {"team": "a\"'<b>"}),
    }
    migrations.migrate(empty_database.engine, "0014")
    assert len(empty_database.read(lambda uow: uow.all(text("SELECT * FROM usage_events")))) == 4
