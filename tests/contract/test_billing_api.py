"""Billing over REST: a virtual month that closes itself, costs of jobs, budgets, and what is
refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.money import bill_invoice, budget, commitment, credit_note
from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard, open_yard

HERE = "/podyard/v1/projects/demo"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, clock_mode="virtual") as found:
        yield found


def _advance(yard: Yard, to: str) -> None:
    yard.ok("POST", "/podyard/v1/clock:advance", {"time": to})
    for _ in range(100):
        yard.loop.round()
        if yard.ok("GET", "/podyard/v1/clock")["platformTime"] == to:
            return
    raise AssertionError("the clock does not arrive")


def _exactly(yard: Yard, node: str) -> int:
    return next(
        int(item["seconds"]) for item in yard.usage()["nodes"] if item["node"].endswith(f"/{node}")
    )


def test_a_year_that_is_walked_closes_its_months(yard: Yard) -> None:
    yard.create("n")
    _advance(yard, "2027-03-01T00:00:00Z")
    found = yard.ok("GET", f"{HERE}/invoices")["invoices"]
    assert [row["month"] for row in found] == [
        *(f"2026-{m:02d}" for m in range(3, 13)),
        "2027-01",
        "2027-02",
    ]
    assert sum(Decimal(row["total"]) for row in found) == 365 * 108
    issued = yard.ok("GET", f"{HERE}/invoices/2026-04")
    assert (issued["state"], issued["invoice"]["total"]) == ("ISSUED", "3240.00")
    draft = yard.ok("GET", f"{HERE}/invoices:preview")
    assert (draft["state"], draft["month"]) == ("EMPTY", "2027-03")
    again = yard.ok("POST", f"{HERE}/invoices/2026-04:close", {})
    assert again == issued
    assert "2027-04-01T00:00:00Z" in yard.refused(
        400, "FAILED_PRECONDITION", "POST", f"{HERE}/invoices/2027-03:close", {}
    )
    booked = yard.ok("GET", f"{HERE}/ledger?pageSize=5")
    assert len(booked["transactions"]) == 5
    rest = yard.ok("GET", f"{HERE}/ledger?pageToken={booked['nextPageToken']}")["transactions"]
    assert len(rest) == 7
    for transaction in (*booked["transactions"], *rest):
        assert sum(int(entry["parts"]) for entry in transaction["entries"]) == 0


def test_the_account_is_shown_and_set(yard: Yard) -> None:
    before = yard.ok("GET", f"{HERE}/billingAccount")
    assert (before["timeZone"], before["currency"], before["nextMonth"]) == (
        "UTC",
        "USD",
        "2026-03",
    )
    changes = {
        "timeZone": "America/Los_Angeles",
        "currency": "EUR",
        "tax": "0.19",
        "exchangeRates": {"2026-03": "0.9"},
    }
    after = yard.ok("PATCH", f"{HERE}/billingAccount", changes)
    assert (after["closesAt"], after["decimals"], after["nextMonth"]) == (
        "2026-03-01T08:00:00Z",
        2,
        "2026-02",
    )
    assert after["exchangeRates"] == {"2026-03": "0.9"}
    yard.refused(400, "INVALID_ARGUMENT", "PATCH", f"{HERE}/billingAccount", {"timezone": "UTC"})
    assert "Mars" in yard.refused(
        400, "INVALID_ARGUMENT", "PATCH", f"{HERE}/billingAccount", {"timeZone": "Mars"}
    )


def test_commitments_are_tried_bought_and_listed(yard: Yard) -> None:
    wanted = {"acceleratorType": "v2-32", "location": ZONE, "years": 3, "validateOnly": True}
    tried = yard.ok("POST", f"{HERE}/commitments", wanted)
    assert (tried["pricePerHour"], tried["verified"], tried["quantity"]) == (
        "10.800000000",
        False,
        1,
    )
    assert yard.ok("GET", f"{HERE}/commitments") == {"commitments": []}
    bought = yard.ok(
        "POST", f"{HERE}/commitments", {**wanted, "validateOnly": False, "upfront": True}
    )
    assert bought["upfront"] == "283824.000000000000"  # 10.80 x 26,280 h
    assert yard.ok("GET", f"{HERE}/commitments")["commitments"] == [bought]
    yard.refused(
        404, "NOT_FOUND", "POST", f"{HERE}/commitments", {"sku": "no-such-sku", "years": 1}
    )
    credit = yard.ok(
        "POST", f"{HERE}/credits", {"amount": "12.5", "untilMonth": "2026-12", "reason": "a gift"}
    )
    assert yard.ok("GET", f"{HERE}/credits")["credits"] == [{**credit, "reason": "a gift"}]


def test_credit_notes_over_rest(yard: Yard) -> None:
    yard.create("n")
    wanted = {"acceleratorType": "v2-32", "location": ZONE, "years": 1}
    commitment = yard.ok("POST", f"{HERE}/commitments", wanted)["commitment"]
    credit = yard.ok("POST", f"{HERE}/credits", {"amount": "12.5", "untilMonth": "2026-12"})[
        "credit"
    ]
    _advance(yard, "2026-04-02T00:00:00Z")
    before = yard.ok("GET", f"{HERE}/invoices/2026-03")
    note = yard.ok(
        "POST", f"{HERE}/creditNotes", {"month": "2026-03", "amount": "10", "reason": "outage"}
    )
    assert (note["creditNote"], note["month"], note["amount"], note["currency"]) == (
        "demo-CN-1",
        "2026-03",
        "10.00",
        "USD",
    )
    ended = yard.ok(
        "POST", f"{HERE}/creditNotes", {"commitment": commitment, "reason": "moved away"}
    )
    assert (ended["amount"], ended["endTime"]) == ("0.00", "2026-04-02T00:00:00Z")
    assert (
        yard.ok("GET", f"{HERE}/commitments")["commitments"][0]["endTime"] == "2026-04-02T00:00:00Z"
    )
    stopped = yard.ok("POST", f"{HERE}/creditNotes", {"credit": credit, "reason": "a mistake"})
    assert stopped["endMonth"] == "2026-04"
    assert yard.ok("GET", f"{HERE}/creditNotes")["creditNotes"] == [note, ended, stopped]
    assert yard.ok("GET", f"{HERE}/invoices/2026-03") == before
    bad: list[tuple[dict[str, str], str]] = [
        ({"reason": "x"}, "specify one of month, commitment and credit"),
        (
            {"month": "2026-03", "commitment": commitment, "amount": "1", "reason": "x"},
            "specify one of",
        ),
        ({"month": "2026-03", "reason": "x"}, "amount is required with month"),
        ({"commitment": commitment, "amount": "1", "reason": "x"}, "not allowed with commitment"),
        ({"credit": credit, "line": "x", "reason": "x"}, "line is only allowed with month"),
        ({"month": "2026-03", "amount": "1"}, "reason"),
        ({"month": "2026-03", "amount": "1", "reason": "x", "currency": "EUR"}, "currency"),
    ]
    for body, said in bad:
        assert said in yard.refused(400, "INVALID_ARGUMENT", "POST", f"{HERE}/creditNotes", body)
    assert len(yard.ok("GET", f"{HERE}/creditNotes")["creditNotes"]) == 3


def test_a_job_costs_all_of_its_attempts_and_the_rest_of_the_node_is_idle(yard: Yard) -> None:
    yard.create("n")
    yard.create("od")
    gang = Gang(yard)
    _advance(yard, "2026-03-01T01:00:00Z")
    body = {
        "recipe": "digits-cnn",
        "node": "n",
        "steps": 20,
        "globalBatch": 64,
        "checkpointEverySteps": 5,
    }
    yard.ok("POST", f"{yard.jobs()}?jobId=j", body)
    yard.step()
    (first,) = gang.sync()
    gang.points(first, 1, 8)
    gang.report(first, checkpoints=[{"step": 5, "name": "c5", "sha256": "0" * 64}])
    _advance(yard, "2026-03-01T01:30:00Z")
    gang.report(first, state="FAILED", reason="it fell over")
    gang.exit_all()
    yard.step()
    (second,) = gang.sync()
    gang.points(second, 6, 20)
    _advance(yard, "2026-03-01T02:00:00Z")
    gang.report(second, state="SUCCEEDED")
    gang.exit_all()
    yard.step()
    _advance(yard, "2026-03-01T03:00:00Z")
    found = yard.ok("GET", f"{HERE}/costs?month=2026-03")
    (job,) = found["jobs"]
    assert [(a["attempt"], a["seconds"], a["lostSteps"]) for a in job["attempts"]] == [
        (1, 1800, 3),
        (2, 1800, 0),
    ]
    assert (job["seconds"], job["amount"], job["steps"]) == (3600, "4.500000000000", 20)
    assert job["perStep"] == "0.225000000000"
    assert job["per1000Examples"] == "3.515625000000"
    assert job["perEpoch"] == "5.055468750000"  # 1,438 examples
    assert job["lost"] == "0.843750000000"  # three of the first attempt's eight steps
    # 20 steps of 0.5 s
    assert (job["estimate"], job["variance"]) == ("0.012500000000", "4.487500000000")
    nodes = {node["name"].rpartition("/")[2]: node for node in found["nodes"]}
    assert nodes["n"]["idle"] == {"seconds": 7200, "amount": "9.000000000000"}
    assert nodes["od"]["idle"]["seconds"] == 10800
    assert found["total"] == "27.000000000000"


def test_what_spot_has_saved_is_net_of_what_was_done_again(yard: Yard) -> None:
    yard.create("n", schedulingConfig={"spot": True})
    gang = Gang(yard)
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10})
    yard.step()
    (first,) = gang.sync()
    gang.points(first, 1, 4)
    _advance(yard, "2026-03-01T01:00:00Z")
    gang.report(first, state="FAILED", reason="it fell over")
    gang.exit_all()
    yard.step()
    (second,) = gang.sync()
    gang.points(second, 1, 10)
    _advance(yard, "2026-03-01T02:00:00Z")
    (job,) = yard.ok("GET", f"{HERE}/costs")["jobs"]
    assert [attempt["onDemand"] for attempt in job["attempts"]] == ["4.500000000000"] * 2
    # all of the first hour was lost
    assert (job["amount"], job["saved"]) == ("2.700000000000", "1.800000000000")


def test_what_if_bills_the_seconds_of_the_month_in_another_way(yard: Yard) -> None:
    yard.create("n")
    _advance(yard, "2026-03-01T10:00:00Z")

    def ask(**change: Any) -> dict[str, Any]:
        return yard.ok("POST", f"{HERE}/costs:whatIf", change)

    assert ask()["difference"] == "0.000000000000"
    assert ask(usage="spot")["changed"] == "13.500000000000"
    assert ask(acceleratorType="v3-8")["changed"] == "80.000000000000"
    assert ask(region="europe-west4")["changed"] == "49.500000000000"
    committed = ask(acceleratorType="v2-32", commitmentYears=1)
    assert (committed["actual"], committed["changed"]) == ("45.000000000000", "151.200000000000")
    yard.create("elsewhere", zone="europe-west4-a")
    _advance(yard, "2026-03-01T11:00:00Z")
    both = ask(acceleratorType="v2-32", commitmentYears=1)
    assert both["changed"] != both["actual"]
    assert ["europe-west4" in reason for reason in both["notSold"]] == [True]
    yard.refused(
        404,
        "NOT_FOUND",
        "POST",
        f"{HERE}/costs:whatIf",
        {"acceleratorType": "v2-8", "commitmentYears": 1},
    )
    held = ask(acceleratorType="v4-8")
    assert "no on-demand price of v4-8 in us-central1" in " ".join(
        one["reason"] for one in held["held"]
    )
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{HERE}/costs:whatIf", {"usage": "free"})
    yard.refused(
        400, "INVALID_ARGUMENT", "POST", f"{HERE}/costs:whatIf", {"acceleratorType": "v9-8"}
    )


def test_a_budget_stops_the_node_of_a_job_in_its_second_after_notice(yard: Yard) -> None:
    wanted = {"amount": "4.5", "scope": "node:n", "actions": ["stop"]}
    made = yard.ok("PUT", f"{HERE}/budgets/b", wanted)
    assert made["secret"]
    assert "secret" not in yard.ok("PUT", f"{HERE}/budgets/b", wanted)
    assert "secret" not in yard.ok("GET", f"{HERE}/budgets/b")
    yard.create("n")
    gang = Gang(yard)
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10})
    yard.step()
    (replica,) = gang.sync()
    gang.points(replica, 1, 3)
    _advance(yard, "2026-03-01T00:59:30Z")
    told = gang.report(replica).json()
    assert told["desired"] == "YIELD"  # it is asked to save before the second comes
    gang.report(replica, state="YIELDED")
    gang.exit_all()
    _advance(yard, "2026-03-01T05:00:00Z")
    assert yard.ok("GET", f"{yard.nodes()}/n")["state"] == "STOPPED"
    assert _exactly(yard, "n") == 3600
    assert yard.usage()["amount"] == "4.500000000000"
    kinds = [event["kind"] for event in yard.ok("GET", f"{HERE}/budgetEvents")["events"]]
    assert kinds == ["notice", "threshold", "stop"]
    (budget,) = yard.ok("GET", f"{HERE}/budgets")["budgets"]
    assert (budget["spent"], budget["reachedAt"]) == ("4.500000000000", "2026-03-01T01:00:00Z")
    yard.ok("DELETE", f"{HERE}/budgets/b")
    yard.refused(404, "NOT_FOUND", "GET", f"{HERE}/budgets/b")


def test_a_budget_of_a_job_counts_its_seconds_only(yard: Yard) -> None:
    yard.create("n")
    yard.create("other")
    yard.ok("PUT", f"{HERE}/budgets/b", {"amount": "0.9", "scope": "job:j", "actions": ["stop"]})
    gang = Gang(yard)
    _advance(yard, "2026-03-01T02:00:00Z")  # idle until now: no cost of the job
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10})
    yard.step()
    (replica,) = gang.sync()
    gang.points(replica, 1, 3)
    _advance(yard, "2026-03-01T02:11:59Z")
    gang.exit_all()
    _advance(yard, "2026-03-01T03:00:00Z")
    assert {name: _exactly(yard, name) for name in ("n", "other")} == {"n": 7920, "other": 10800}
    (job,) = yard.ok("GET", f"{HERE}/costs")["jobs"]
    assert job["amount"] == "0.898750000000"  # it left a second before its node was stopped


def test_a_job_that_brings_its_node_is_refused_by_a_budget(yard: Yard) -> None:
    yard.create("n")
    _advance(yard, "2026-03-01T10:00:00Z")
    yard.ok("PUT", f"{HERE}/budgets/b", {"amount": "1", "actions": ["refuse-new-nodes"]})
    body = {
        "recipe": "digits-cnn",
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "steps": 10,
    }
    Gang(yard)
    message = yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{yard.jobs()}?jobId=j", body)
    assert message == "budget b of projects/demo is used up: 45.00 of 1.00 USD in 2026-03"
    # On record, once in this minute, whichever way it was asked.
    node = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    assert (
        yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{yard.nodes()}?nodeId=m", node) == message
    )
    wanted = {
        "tpu": {
            "nodeSpec": [{"parent": f"projects/demo/locations/{ZONE}", "nodeId": "q", "node": node}]
        }
    }
    path = f"/v2alpha1/projects/demo/locations/{ZONE}/queuedResources?queuedResourceId=q"
    assert yard.refused(429, "RESOURCE_EXHAUSTED", "POST", path, wanted) == message
    events = yard.ok("GET", f"{HERE}/budgetEvents")["events"]
    (refusal,) = [event for event in events if event["kind"] == "refuse"]
    assert refusal["detail"] == "2026-03-01T10:00:00Z owner@podyard.local"
    assert refusal["text"] == f"owner@podyard.local was refused j: {message}"


def test_a_line_is_explained_page_by_page(yard: Yard) -> None:
    for node in ("a", "b", "c"):
        yard.create(node)
    _advance(yard, "2026-04-01T01:00:00Z")
    path = f"{HERE}/invoices/2026-03:explain"
    (line,) = yard.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]["lines"]
    records, asked = [], {"line": line["id"], "pageSize": "2"}
    while True:
        page = yard.ok("GET", path, params=asked)
        assert {
            name: page[name] for name in ("quantity", "unitSeconds", "seconds", "unitPrice")
        } == {name: line[name] for name in ("quantity", "unitSeconds", "seconds", "unitPrice")}
        assert page["amount"] == line["exactUsd"]
        records += page["records"]
        if "nextPageToken" not in page:
            break
        asked["pageToken"] = page["nextPageToken"]
    assert [record["resource"][-1] for record in records] == sorted(
        record["resource"][-1] for record in records
    )
    assert sum(Decimal(record["amount"]) for record in records) == Decimal(line["exactUsd"])
    for wrong in ("", "nothing", f"{line['id']}0"):
        yard.refused(404, "NOT_FOUND", "GET", path, params={"line": wrong})
    yard.refused(
        404, "NOT_FOUND", "GET", f"{HERE}/invoices/2020-01:explain", params={"line": line["id"]}
    )
    yard.refused(
        400,
        "INVALID_ARGUMENT",
        "GET",
        f"{HERE}/invoices/march:explain",
        params={"line": line["id"]},
    )
    elsewhere = path.replace("/projects/demo/", "/projects/other/")
    yard.refused(404, "NOT_FOUND", "GET", elsewhere, params={"line": line["id"]})


@pytest.fixture
def podyard(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Runs a command and returns what it printed."""
    clients: list[Client] = []

    def client_of(_data: object, _project: object, location: str | None = None) -> Client:
        clients.append(Client(Target(yard.url, yard.token, "demo", location or ZONE)))
        return clients[-1]

    for module in (bill_invoice, budget, commitment, credit_note):
        monkeypatch.setattr(module, "client_of", client_of)

    def call(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(root, list(words))
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    yield call
    for client in clients:
        client.close()


def test_the_commands_do_the_same(yard: Yard, podyard: Callable[..., str]) -> None:
    yard.create("n")
    podyard(
        "budget", "set", "b", "--amount", "50", "--threshold", "0.5", "--action", "refuse-new-nodes"
    )
    assert "refuse-new-nodes" in podyard("budget", "list")
    dry = podyard("commitment", "buy", "--type", "v2-32", "--years", "1", "--dry-run")
    assert "not verified" in dry
    assert "Nothing was bought" in dry
    assert "commitment-" not in podyard("commitment", "list")
    podyard("commitment", "buy", "--type", "v2-32", "--years", "1")
    assert " 15.12 " in podyard("commitment", "list")
    assert "a gift" in podyard(
        "bill", "credit", "add", "--amount", "8", "--until-month", "2026-04", "--reason", "a gift"
    ) + podyard("bill", "credit", "list")
    assert "0.1" in podyard("bill", "account", "set", "--tax", "0.1", "--grace-hours", "1")
    _advance(yard, "2026-03-01T10:00:00Z")
    assert "DRAFT in USD" in podyard("bill", "invoice")
    assert "0.5" in podyard("budget", "events")
    assert "$151.20" in podyard("bill", "costs", "--month", "2026-03")
    changed = json.loads(podyard("bill", "what-if", "--usage", "spot", "-o", "json"))
    assert changed["difference"] == "-31.500000000000"
    _advance(yard, "2026-04-01T01:00:00Z")
    issued = podyard("bill", "invoice", "2026-03")
    assert "demo-2026-03 ISSUED in USD" in issued
    made = podyard("bill", "credit-note", "create", "2026-03", "2.50", "--reason", "an outage")
    assert "demo-CN-1" in made and "2.50" in made
    (bought,) = json.loads(podyard("commitment", "list", "-o", "json"))
    assert bought["commitment"] in podyard(
        "commitment", "end", bought["commitment"], "--reason", "moved away"
    )
    (credit,) = json.loads(podyard("bill", "credit", "list", "-o", "json"))
    assert credit["credit"] in podyard(
        "bill", "credit", "end", credit["credit"], "--reason", "a mistake"
    )
    notes = podyard("bill", "credit-note", "list")
    assert "an outage" in notes and "moved away" in notes and "a mistake" in notes
    podyard("bill", "credit-note", "create", "2026-03", "999999", "--reason", "x", code=1)
    assert "999999" not in podyard("bill", "credit-note", "list")
    assert "-$8.00" in issued
    assert "744 device-hours" in issued
    assert "demo-2026-03" in podyard("bill", "invoice", "--list")
    podyard("bill", "invoice", "2026-03", "--list", code=2)
    line = "tpu-v2-device/us-central1/on-demand@4.50"
    explained = podyard("bill", "explain", "2026-03", line)
    assert "744 device-hours at $4.50 cost $3,348.00 (exactly $3348.00)" in explained
    assert "2026-04-01T00:00:00Z" in explained
    assert (
        json.loads(podyard("bill", "explain", "2026-03", line, "-o", "json"))["records"][0][
            "seconds"
        ]
        == 2_678_400
    )
    podyard("bill", "explain", "2026-03", "nothing", code=1)
    assert json.loads(podyard("bill", "close", "2026-03", "-o", "json"))["state"] == "ISSUED"
    podyard("budget", "delete", "b")
    podyard("bill", "close", "2026-04", code=1)
    podyard("commitment", "buy", "--years", "1", code=2)


def test_an_account_that_pays_for_another_project(yard: Yard, tmp_path: Path) -> None:
    there = "/podyard/v1/projects/research"
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "research"})
    assert yard.ok("GET", f"{there}/billingInfo") == {
        "project": "research",
        "paidBy": "projects/research",
    }
    yard.create("n")
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    yard.ok("POST", "/v2/projects/research/locations/us-central1-a/nodes?nodeId=m", body)
    made = yard.ok("PUT", f"{there}/billingInfo", {"paidBy": "projects/demo"})
    assert made["paidBy"] == "projects/demo" and made["since"].startswith("2026-03-01T")
    assert yard.ok("GET", f"{there}/billingInfo") == made
    assert yard.ok("GET", f"{HERE}/billingAccount")["projects"] == ["demo", "research"]
    assert yard.ok("GET", f"{there}/billingAccount")["projects"] == []
    _advance(yard, "2026-04-03T00:00:00Z")
    (line,) = yard.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]["lines"]
    asked = "?groupBy=project&from=2026-03-01&to=2026-03-31"
    rows = {
        row["group"]: Decimal(row["net"])
        for row in yard.ok("GET", f"{HERE}/costs:explore{asked}")["rows"]
    }
    assert set(rows) == {"demo", "research"} and sum(rows.values()) == Decimal(line["exactUsd"])
    rows = {
        row["group"]: Decimal(row["net"])
        for row in yard.ok("GET", f"{there}/costs:explore{asked}")["rows"]
    }
    assert set(rows) == {"research"}
    assert yard.ok("GET", f"{there}/invoices")["invoices"] == []
    for body, field in (
        ({}, "paidBy"),
        ({"paidBy": "demo"}, "paidBy"),
        ({"paidBy": "projects/demo/x"}, "paidBy"),
        ({"paidBy": "projects/"}, "paidBy"),
        ({"paidBy": 1}, "paidBy"),
        ({"paidBy": "projects/demo", "since": "2026-01-01T00:00:00Z"}, "since"),
    ):
        assert field in yard.refused(400, "INVALID_ARGUMENT", "PUT", f"{there}/billingInfo", body)
    yard.refused(404, "NOT_FOUND", "PUT", f"{there}/billingInfo", {"paidBy": "projects/nobody"})
    yard.refused(404, "NOT_FOUND", "GET", "/podyard/v1/projects/nobody/billingInfo")


def test_accounts_are_linked_on_the_command_line(yard: Yard, podyard: Callable[..., str]) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "research"})
    assert "projects/research" in podyard("bill", "account", "link", "research")
    assert yard.ok("GET", f"{HERE}/billingInfo")["paidBy"] == "projects/research"
    assert (
        json.loads(podyard("bill", "account", "unlink", "-o", "json"))["paidBy"] == "projects/demo"
    )
    assert "PAYS_FOR" in podyard("bill", "account", "show")
