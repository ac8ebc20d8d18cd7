"""Costs by labels at the time of use and by who created what, over REST and the command line; what
is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.money import bill
from podyard.control.compute import nodes
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.principal import PLATFORM, Principal
from podyard.web.front.pages import router as console
from tests.contract.test_billing_api import HERE, _advance
from tests.yard import ZONE, Yard, open_yard

EXPLORE = f"{HERE}/costs:explore"
BODY = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, clock_mode="virtual") as found:
        yield found


@pytest.fixture
def podyard(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    client = Client(Target(yard.url, yard.token, "demo", ZONE))
    monkeypatch.setattr(bill, "client_of", lambda *_: client)

    def call(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(root, list(words))
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    yield call
    client.close()


def _groups(yard: Yard, **query: Any) -> dict[str, str]:
    """The net of each group, in cents; rows, bars and total agree."""
    found = yard.ok("GET", EXPLORE, params=query)
    for rows in (found["rows"], found["bars"]):
        for name in ("gross", "credits", "net"):
            assert sum(Decimal(row[name]) for row in rows) == Decimal(found["total"][name])
    return {row["group"]: f"{Decimal(row['net']):.2f}" for row in found["rows"]}


def _ann(yard: Yard) -> dict[str, str]:
    asked = {"email": "ann@x.org", "project": "demo", "roles": ["owner"]}
    return {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', asked)['token']}"}


def test_a_node_that_changes_teams_costs_each_of_them_what_it_used(
    yard: Yard, podyard: Callable[..., str]
) -> None:
    ann = _ann(yard)
    yard.ok("POST", f"{yard.nodes()}?nodeId=hers", {**BODY, "labels": {"team": "a"}}, headers=ann)
    yard.create("n", labels={"team": "b"})
    _advance(yard, "2026-03-11T00:00:00Z")
    # the first one has nothing to change in it
    for version, team in (("v2", "b"), ("v2alpha1", "c")):
        yard.ok(
            "PATCH",
            f"{yard.nodes().replace('v2', version)}/hers?updateMask=labels",
            {"labels": {"team": team}},
        )
    _advance(yard, "2026-03-21T00:00:00Z")
    yard.ok("PATCH", f"{yard.nodes()}/hers?updateMask=labels", {"labels": {}}, headers=ann)
    _advance(yard, "2026-04-01T00:00:00Z")
    march = {"from": "2026-03-01", "to": "2026-03-31"}
    teams = {"a": "1080.00", "b": "3348.00", "c": "1080.00", "(none)": "1188.00"}
    assert _groups(yard, **march, groupBy="label:team") == teams
    assert _groups(yard, **march, groupBy="user") == {
        "ann@x.org": "3348.00",
        "owner@podyard.local": "3348.00",
    }
    hers = {"where": ["user=ann@x.org", "label:team=c"], "groupBy": "node", "bucket": "month"}
    assert _groups(yard, **march, **hers) == {f"{ZONE}/hers": "1080.00"}
    assert _groups(yard, **march, groupBy="label:team", where="label:team=(none)") == {
        "(none)": "1188.00"
    }
    _advance(yard, "2026-04-09T00:00:00Z")
    issued = yard.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]
    assert issued["total"] == "6696.00"
    yard.ok("PATCH", f"{yard.nodes()}/n?updateMask=labels", {"labels": {"team": "z"}})
    _advance(yard, "2026-04-10T00:00:00Z")
    assert _groups(yard, **march, groupBy="label:team") == teams  # what is over moves no more
    assert _groups(yard, **march, groupBy="label:team", by="invoice") == teams
    assert yard.ok("GET", f"{HERE}/invoices/2026-03")["invoice"] == issued
    days = ("--from", "2026-03-01", "--to", "2026-03-31")
    shown = podyard("bill", "explore", "--group-by", "label:team", *days).splitlines()
    assert [line.split()[0] for line in shown] == ["LABEL:TEAM", "b", "(none)", "a", "c", "Total"]
    assert shown[-1].startswith("Total $6,696.00 from 2026-03-01 to 2026-03-31")
    by_user = podyard(
        "bill", "explore", "--group-by", "user", "--by", "invoice", "--bucket", "month", *days
    )
    assert "ann@x.org" in by_user
    assert "2026-03" in by_user
    assert "ann@x.org" in podyard("bill", "show")


def test_events_say_labels_and_creators(yard: Yard) -> None:
    yard.create("n", labels={"team": "a"})
    yard.ok("PATCH", f"{yard.nodes()}/n?updateMask=labels", {"labels": {"team": "b"}})
    yard.ok("PATCH", f"{yard.nodes()}/n?updateMask=description", {"description": "x"})
    events = [one for one in yard.ok("GET", f"{HERE}/events")["events"] if one["kind"] == "node"]
    told = [
        (one["event"], one["toState"], one.get("labels"), one.get("createdBy")) for one in events
    ]
    assert told == [
        ("create", "CREATING", {"team": "a"}, "owner@podyard.local"),
        ("created", "READY", None, None),
        ("relabel", "READY", {"team": "b"}, None),
    ]
    (usage,) = yard.usage()["nodes"]
    assert usage["createdBy"] == "owner@podyard.local"
    # both in one second of the clock
    assert [one["labels"] for one in usage["labels"]] == [{"team": "b"}]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"groupBy": "team"}, "unknown dimension 'team'"),
        ({"groupBy": "label"}, "label:KEY"),
        ({"groupBy": "label:<script>alert(1)</script>", "from": "x"}, "not a day"),
        ({"where": "team"}, "not a filter"),
        ({"where": [f"node={index}" for index in range(11)]}, "at most 10 filters"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "before"),
        ({"from": "2020-01-01", "bucket": "hour"}, "at most 100 bars"),
        ({"bucket": "week"}, "hour, day, month"),
        ({"by": "magic"}, "use or invoice"),
        ({"group": "node"}, "unknown query parameter 'group'"),
    ],
)
def test_bad_questions_are_refused(yard: Yard, query: dict[str, Any], text: str) -> None:
    assert text in yard.refused(400, "INVALID_ARGUMENT", "GET", EXPLORE, params=query)


def test_of_nothing_there_is_nothing(yard: Yard) -> None:
    assert _groups(yard, groupBy="label:=1+1") == {}
    assert _groups(yard, groupBy="user", by="invoice") == {}


EVIL = '=HYPERLINK("<img src=x onerror=alert(1)>")'
EVIL_KEY = "+<img src>"
EVIL_EMAIL = "-2+3@<script>x</script>.org"


def test_hostile_labels_and_creators_are_text_on_every_page_and_in_every_file(
    tmp_path: Path,
) -> None:
    """As a foreign tool may have written them: the API refuses such texts."""
    with open_yard(tmp_path, clock_mode="virtual", routers=(console,)) as yard:
        yard.create("n", labels={"team": "a"})
        evil = Principal(EVIL_EMAIL, {"demo": frozenset({"owner"})})
        fleet = instant_fleet()
        spec = NodeSpec("v2-8", "2x2", "tpu-vm-base", UsageClass.ON_DEMAND, labels={EVIL_KEY: EVIL})
        yard.database.run(lambda uow: nodes.create(uow, fleet, evil, "demo", ZONE, "theirs", spec))
        yard.step()
        yard.database.run(
            lambda uow: nodes.patch(uow, PLATFORM, "demo", ZONE, "n", {"labels": {"team": EVIL}})
        )
        _advance(yard, "2026-03-02T00:00:00Z")
        session = {"Cookie": f"podyard_session={yard.token}"}
        here = "/console/demo/billing/explorer"
        pages = (
            f"{here}?{urlencode({'group': 'label:team'})}",
            f"{here}?{urlencode({'group': f'label:{EVIL_KEY}', 'where': f'user={EVIL_EMAIL}'})}",
            f"{here}?group=user",
            f"/console/demo/nodes/{ZONE}/n",
            f"/console/demo/nodes/{ZONE}/theirs",
            "/console/demo/billing/budgets",
        )
        yard.ok("PUT", f"{HERE}/budgets/b", {"amount": "1", "scope": f"user:{EVIL_EMAIL}"})
        yard.ok("PUT", f"{HERE}/budgets/c", {"amount": "1", "scope": f"label:team={EVIL}"})
        for path in pages:
            text = yard.bare.get(path, headers=session).text
            assert "<img" not in text and "<script>" not in text, path
            assert "&lt;img" in text or "&lt;script" in text, path
        for group, found in (("label:team", EVIL), ("user", EVIL_EMAIL)):
            answer = yard.bare.get(
                f"{here}?{urlencode({'group': group, 'format': 'csv'})}", headers=session
            )
            names = [row[0] for row in csv.reader(io.StringIO(answer.text))]
            assert f"'{found}" in names and found not in names
        assert _groups(yard, groupBy="label:team") == {EVIL: "108.00", "(none)": "108.00"}
        assert _groups(yard, groupBy="user", where=f"label:{EVIL_KEY}={EVIL}") == {
            EVIL_EMAIL: "108.00"
        }
