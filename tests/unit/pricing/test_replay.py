"""`podyard bill replay`: what it refuses, naming the field, and that a bad line costs its own case
only."""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from podyard.base.money import Amount
from podyard.cli.money import bill as cli
from podyard.cli.money.bill import bill
from podyard.pricing import case as case_module
from podyard.pricing import replay
from podyard.pricing.replay import decimal_text, exact_text, replay_line
from tests.unit.pricing import invented
from tests.unit.pricing.invented import commitment, credit, job

GOOD = invented.case(
    "good",
    invented.hour(),
    commitments=[commitment("c", 1, "1.00", "10 10:00:00", "10 10:10:00")],
    credits=[credit("k", "1.00")],
    jobs=[job("j", "n", "10 10:00:00", "10 10:30:00")],
    budget={"usd": "2.00"},
    issued={"2026-03": "1.00"},
    open_month="2026-04",
)
REMOVED = object()


def changed(path: str, value: object) -> dict[str, Any]:
    """GOOD with one field set (or removed) at a path such as `events.0.t`."""
    case: Any = copy.deepcopy(GOOD)
    *steps, last = path.split(".")
    place = case
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    if value is REMOVED:
        del place[last]
    elif isinstance(place, list):
        place[int(last) :] = [value]
    else:
        place[last] = value
    return dict(case)


def error_of(line: bytes) -> dict[str, Any]:
    answer, is_result = replay_line(line)
    assert not is_result, answer
    assert set(answer) == {"id", "error"}
    assert set(answer["error"]) == {"code", "message", "status"}
    return dict(answer["error"])


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("policy", REMOVED, "policy: is missing"),
        ("colour", "red", "colour: is not a known key"),
        ("id", 7, "id: 7 is not a text"),
        ("policy", [], "policy: [] is not an object"),
        ("policy.round", "x", "policy.round: is not a known key"),
        ("policy.tax", REMOVED, "policy.tax: is missing"),
        ("policy.tax", 0.19, 'policy.tax: 0.19 is not a decimal number as text, such as "4.50"'),
        ("policy.tax", "-0.1", "policy.tax: -0.1 is negative"),
        ("policy.rounding", "HALF_EVEN", "policy.rounding: 'HALF_EVEN': only HALF_UP is known"),
        (
            "policy.invoice_tz",
            "Mars/Base",
            "policy.invoice_tz: 'Mars/Base' is not an IANA time zone",
        ),
        ("policy.currency", "dollar", "policy.currency: 'dollar' is not a currency such as USD"),
        ("policy.minor", 10, "policy.minor: 10 is not an integer from 0 to 9"),
        ("policy.minor", True, "policy.minor: True is not an integer"),
        ("policy.fx", "0", "policy.fx: an exchange rate is not 0"),
        ("policy.fx", {"2026-02": "1.1"}, "policy.fx: no rate for 2026-03"),
        (
            "policy.fx",
            {"March": "1.1"},
            "policy.fx: 'March' is not a month: use YYYY-MM, such as 2026-03",
        ),
        ("policy.billable_states", {"gpu": []}, "policy.billable_states.gpu: is not a known key"),
        (
            "policy.billable_states",
            {"vm": []},
            "policy.billable_states.tpu: is missing, and resources[0] is a tpu",
        ),
        (
            "policy.billable_states.tpu",
            "READY",
            "policy.billable_states.tpu: 'READY' is not a list of states",
        ),
        ("policy.preempt_free_s", -1, "policy.preempt_free_s: -1 is not an integer from 0"),
        ("rate_card", {}, "rate_card: {} is not a list"),
        ("rate_card.0.unit", "hour", "rate_card[0].unit: 'hour' is not one of"),
        ("rate_card.0.usd", "-4.50", "rate_card[0].usd: -4.50 is negative"),
        ("rate_card.0.usd", 4.5, "rate_card[0].usd: 4.5 is not a decimal number as text"),
        ("rate_card.0.usd", "4,50", "rate_card[0].usd: '4,50' is not a decimal number"),
        ("rate_card.0.usd", "1e3", "rate_card[0].usd: '1e3' is not a decimal number"),
        ("rate_card.0.usd", "NaN", "rate_card[0].usd: 'NaN' is not a decimal number"),
        ("rate_card.0.usd", "0.0000000001", "has more than nine decimals"),
        (
            "rate_card.0.effective_from",
            "2026-03-01",
            "rate_card[0].effective_from: '2026-03-01' is not an RFC 3339",
        ),
        ("rate_card.0.effective_from", "2026-03-01T00:00:00.5Z", "is not a whole second"),
        (
            "rate_card.0.sku",
            "commitment:x",
            "rate_card[0].sku: names that start with 'commitment:'",
        ),
        (
            "rate_card.4",
            {**GOOD["rate_card"][0], "usd": "9"},
            "rate_card[4].effective_from: tpu-v2/r/on-demand has",
        ),
        (
            "rate_card.4",
            {**GOOD["rate_card"][0], "unit": "chip_hour"},
            "rate_card[4].unit: 'chip_hour' is another unit",
        ),
        ("rate_card.4", "cheap", "rate_card[4]: 'cheap' is not an object"),
        ("resources.0.sku", "nothing", "resources[0].sku: 'nothing' has no price in rate_card"),
        ("resources.0.quantity", -1, "resources[0].quantity: -1 is not an integer from 0"),
        ("resources.0.quantity", 1.5, "resources[0].quantity: 1.5 is not an integer"),
        ("resources.0.kind", "gpu", "resources[0].kind: 'gpu' is not one of tpu, vm, disk"),
        ("resources.0.kind", ["tpu"], "resources[0].kind: ['tpu'] is not one of"),
        ("resources.0.scheduling", "CHEAP", "resources[0].scheduling: 'CHEAP' is not one of"),
        ("resources.1", GOOD["resources"][0], "resources[1].id: 'n' is there twice"),
        ("events.0.t", "yesterday", "events[0].t: 'yesterday' is not an RFC 3339 time"),
        ("events.0.t", "2026-02-30T00:00:00Z", "events[0].t: "),
        ("events.0.t", 5, "events[0].t: 5 is not a text"),
        ("events.1.seq", "2", "events[1].seq: '2' is not an integer of 64 bits"),
        ("events.1.seq", 2**63, "is not an integer of 64 bits"),
        ("events.1.resource", "m", "events[1].resource: 'm' is not one of the resources"),
        ("events.1.state", "", "events[1].state: '' is not a text"),
        ("events.1.t", REMOVED, "events[1].t: is missing"),
        ("as_of", "2026-03-10", "as_of: '2026-03-10' is not an RFC 3339 time"),
        ("commitments.0.covers", "x", "commitments[0].covers: 'x' has no price in rate_card"),
        ("commitments.0.quantity", -4, "commitments[0].quantity: -4 is not an integer from 0"),
        (
            "commitments.0.until",
            "2026-03-10T09:00:00Z",
            "commitments[0].until: 2026-03-10T09:00:00Z is before",
        ),
        ("commitments.1", GOOD["commitments"][0], "commitments[1].id: 'c' is there twice"),
        ("credits.0.usd", "-1", "credits[0].usd: -1 is negative"),
        ("credits.0.until_month", "2026-02", "credits[0].until_month: 2026-02 is before 2026-03"),
        ("credits.0.from_month", "2026-13", "credits[0].from_month: '2026-13' is not a month"),
        ("jobs.0.resource", "m", "jobs[0].resource: 'm' is not one of the resources"),
        ("jobs.0.end", "2026-03-10T09:00:00Z", "jobs[0].end: 2026-03-10T09:00:00Z is before"),
        ("jobs.0.id", "idle", "jobs[0].id: 'idle' is the name of what no job has"),
        ("budget", {"eur": "1"}, "budget.eur: is not a known key"),
        ("budget.usd", "-1", "budget.usd: -1 is negative"),
        ("issued", [], "issued: is not an object of months and totals"),
        ("issued", {"2026-03": "1.005"}, "issued.2026-03: '1.005' has more than 2 decimals"),
        ("issued", {"2026": "1"}, "issued: '2026' is not a month"),
        ("open_month", REMOVED, "2026-03 has to be corrected, but no month is open"),
        ("open_month", "2026-03", "2026-03 has to be corrected, but no month is open"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(path: str, value: object, says: str) -> None:
    error = error_of(json.dumps(changed(path, value)).encode())
    assert says in error["message"]
    expected = (
        "FAILED_PRECONDITION" if says == "policy.fx: no rate for 2026-03" else "INVALID_ARGUMENT"
    )
    assert (error["code"], error["status"]) == (400, expected)


def test_the_good_case_is_good() -> None:
    answer, is_result = replay_line(json.dumps(GOOD).encode())
    assert is_result
    assert set(answer["result"]) == {
        *("seconds", "sku_cost_usd", "invoices"),
        *("attribution", "budget_stop_at", "adjustments"),
    }


def test_optional_keys_are_there_only_with_their_cause() -> None:
    case = invented.case("plain", invented.hour())
    assert set(replay_line(json.dumps(case).encode())[0]["result"]) == {
        "seconds",
        "sku_cost_usd",
        "invoices",
    }
    remarks = {"title": "x", "tags": ["y"], "hand_checked": True, "expect": {}}
    assert replay_line(json.dumps({**case, **remarks}).encode())[1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nothing", "not JSON: Expecting value"),
        (b'{"id": "x"', "not JSON: "),
        (b'"\xff"', "not JSON: "),
        (b"[1, 2]", "case: [1, 2] is not an object"),
        (b'{"id": NaN}', "not JSON: NaN is not a number"),
        (b'{"id": "a", "id": "b"}', "the key 'id' is there twice"),
        (b"[" * 100_000, "not a case: it is nested too deep"),
        (b'{"id": "x", "as_of": ' + b"9" * 5000 + b"}", "not JSON: "),
    ],
)
def test_what_is_no_case_is_refused(line: bytes, says: str) -> None:
    assert says in error_of(line)["message"]


def test_seconds_without_a_price_are_an_error_that_says_which() -> None:
    card = [invented.price(invented.ON_DEMAND, "4.50", "10 10:30:00")]
    error = error_of(json.dumps(invented.case("gap", invented.hour(), card=card)).encode())
    assert error["status"] == "FAILED_PRECONDITION"
    assert "no price for 1800 s of n from 2026-03-10T10:00:00Z" in error["message"]
    assert "no price before 2026-03-10T10:30:00Z" in error["message"]
    unused = invented.case(
        "unused", {"resource": invented.hour()["resource"], "events": []}, card=card
    )
    assert replay_line(json.dumps(unused).encode())[1]


def test_limits_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_module, "EVENTS_MAX", 1)
    assert error_of(json.dumps(GOOD).encode())["message"] == "events: are 2: at most 1 are read"
    monkeypatch.setattr(replay, "LINE_BYTES_MAX", 10)
    assert error_of(json.dumps(GOOD).encode())["message"] == "the line is longer than 10 bytes"


def test_text_forms() -> None:
    assert [decimal_text(Amount(parts)) for parts in (0, 2_628_000 * 10**9, 2_628, 1)] == [
        "0",
        "1",
        "0.000000000001",
        "0",
    ]
    assert [exact_text(Amount(parts)) for parts in (0, 2_628_000 * 10**9, 1)] == [
        "0",
        "1",
        "1/2628000000000000",
    ]


def run(*lines: bytes) -> tuple[list[dict[str, Any]], int]:
    done = CliRunner().invoke(bill, ["replay", "-", "-o", "jsonl"], input=b"\n".join(lines))
    return [json.loads(line) for line in done.stdout.splitlines()], done.exit_code


def test_a_bad_line_costs_its_own_case_only() -> None:
    good = json.dumps(GOOD).encode()
    answers, code = run(
        good, b"nothing", json.dumps(changed("as_of", "never")).encode(), b"", good + b"\r"
    )
    assert ["result" in answer for answer in answers] == [True, False, False, True]
    assert [answer["id"] for answer in answers] == ["good", None, "good", "good"]
    assert code == 1
    assert run(good, good)[1] == 0
    assert run() == ([], 0)


def test_a_line_that_is_too_long_is_skipped_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.dumps(GOOD).encode()
    monkeypatch.setattr(replay, "LINE_BYTES_MAX", len(good) + 10)
    answers, code = run(b"[" * (5 * len(good)), good)
    assert ["result" in answer for answer in answers] == [False, True]
    assert code == 1


def test_cases_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line is read only when the answer before it is out."""
    events: list[str] = []

    class Source(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            events.append("read")
            return super().readline(size)

    def answered(line: bytes) -> tuple[dict[str, Any], bool]:
        events.append("answered")
        return {}, True

    monkeypatch.setattr(replay, "replay_line", answered)
    callback: Callable[..., None] = getattr(cli.replay.callback, "__wrapped__", cli.replay.callback)
    callback(Source(b"1\n2\n"))
    assert events == ["read", "answered", "read", "answered", "read"]


def test_the_command_reads_a_file_and_needs_one(tmp_path: Any) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(GOOD) + "\n", encoding="utf-8")
    done = CliRunner().invoke(bill, ["replay", str(file)])
    assert (done.exit_code, json.loads(done.stdout)["id"]) == (0, "good")
    assert CliRunner().invoke(bill, ["replay", str(tmp_path / "none")]).exit_code == 2
