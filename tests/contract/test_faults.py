"""Fault rules over REST and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.domain.fault import EFFECTS
from tests.contract.fault_yard import (
    FAULTS,
    FLEET,
    add,
    advance,
    node,
    ready,
    statements,
)
from tests.yard import ZONE, Yard, open_yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, FLEET, clock_mode="virtual") as found:
        yield found


def test_a_rule_is_shown_as_it_was_given_and_gone_when_it_is_removed(yard: Yard) -> None:
    given = {
        "effect": "preempt",
        "match": {"zone": "us-*"},
        "count": 3,
        "from": "1h",
        "until": "2h",
        "every": "10m",
    }
    made = yard.ok("POST", FAULTS, {**given, "notice": "30s"})
    assert made == {
        "name": f"faults/{made['fault']}",
        "fault": made["fault"],
        "effect": "preempt",
        "match": {"zone": "us-*"},
        "notice": 30.0,
        "during": "ready",
        "probability": 1.0,
        "count": 3,
        "from": "2026-03-01T01:00:00Z",
        "until": "2026-03-01T02:00:00Z",
        "every": 600.0,
        "createTime": "2026-03-01T00:00:00Z",
        "fired": 0,
        "over": False,
    }
    assert yard.ok("GET", f"{FAULTS}/{made['fault']}") == made
    others = [add(yard, "stockout", match={"zone": "x"}) for _ in range(2)]
    first = yard.ok("GET", f"{FAULTS}?pageSize=2")
    assert [item["fault"] for item in first["faults"]] == [made["fault"], others[0]]
    rest = yard.ok("GET", f"{FAULTS}?pageSize=2&pageToken={first['nextPageToken']}")
    assert [item["fault"] for item in rest["faults"]] == [others[1]]
    yard.ok("DELETE", f"{FAULTS}/{made['fault']}")
    yard.refused(404, "NOT_FOUND", "GET", f"{FAULTS}/{made['fault']}")
    yard.refused(404, "NOT_FOUND", "DELETE", f"{FAULTS}/{made['fault']}")
    advance(yard, "3h")


def test_of_several_rules_all_are_added_or_none(yard: Yard) -> None:
    wrong = [{"effect": "stockout"}, {"effect": "preempt", "probability": 2}]
    text = yard.refused(400, "INVALID_ARGUMENT", "POST", f"{FAULTS}:batchCreate", {"faults": wrong})
    assert text.startswith("faults[1].probability: 2")
    for body in (
        {},
        {"faults": {}},
        {"faults": [], "more": 1},
        {"faults": [{"effect": "stockout"}] * 257},
    ):
        yard.refused(400, "INVALID_ARGUMENT", "POST", f"{FAULTS}:batchCreate", body)
    assert yard.ok("GET", FAULTS)["faults"] == []
    added = yard.ok(
        "POST", f"{FAULTS}:batchCreate", {"faults": [{"effect": "stockout"}, {"effect": "health"}]}
    )
    assert yard.ok("GET", FAULTS) == added


def test_there_is_a_limit_of_rules(yard: Yard) -> None:
    yard.ok("POST", f"{FAULTS}:batchCreate", {"faults": [{"effect": "health"}] * 256})
    text = yard.refused(400, "FAILED_PRECONDITION", "POST", FAULTS, {"effect": "health"})
    assert "the maximum is 256" in text


def test_faults_are_for_who_has_the_role_on_the_whole_platform(yard: Yard) -> None:
    fault = add(yard, "stockout", match={"zone": "x"})
    body = {"email": "eve@example.com", "project": "demo", "roles": ["owner", "tpu.admin"]}
    eve = {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', body)['token']}"}
    for verb, path in (
        ("POST", FAULTS),
        ("POST", f"{FAULTS}:batchCreate"),
        ("GET", FAULTS),
        ("GET", f"{FAULTS}/{fault}"),
        ("GET", f"{FAULTS}/f-none"),
        ("DELETE", f"{FAULTS}/{fault}"),
    ):
        message = yard.refused(403, "PERMISSION_DENIED", verb, path,
            {"effect": "wrong"} if verb == "POST" else None,
                               headers=eve)  # fmt: skip
        assert "podyard.faults." in message
    assert [item["fault"] for item in yard.ok("GET", FAULTS)["faults"]] == [fault]


def test_without_rules_no_statement_is_asked_for_them(yard: Yard) -> None:
    ready(yard, "n")
    node(yard, "n")
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}

    def calls() -> None:
        yard.clock.advance(1.0)  # whatever was known of rules is too old
        node(yard, "n")
        yard.ok("GET", yard.nodes())
        yard.ok("POST", f"{yard.nodes()}?nodeId=new", body)

    def about_faults(found: list[str]) -> list[str]:
        return [
            text
            for text in found
            if " faults" in text or "node_faults" in text or "broken_chips" in text
        ]

    without = statements(yard, calls)
    assert about_faults(without) == []
    fault = add(yard, "late", seconds=5)
    yard.ok("DELETE", f"{yard.nodes()}/new")
    advance(yard, "60s")
    # The count can fail: with a rule, the same calls ask.
    assert about_faults(statements(yard, calls))
    yard.ok("DELETE", f"{FAULTS}/{fault}")
    yard.ok("DELETE", f"{yard.nodes()}/new")
    advance(yard, "60s")
    assert len(statements(yard, calls)) == len(without)


def _run(yard: Yard, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    client = Client(Target(yard.url, yard.token, "demo", ZONE))
    monkeypatch.setattr("podyard.cli.nodes.faults.client_of", lambda _data: client)
    result = CliRunner().invoke(root, ["fault", *words])
    client.close()
    return (
        result.exit_code,
        result.output if result.exception is None else f"{result.output}{result.exception}",
    )


def test_the_command_line_adds_lists_and_removes(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "preempt",
        "--zone",
        "us-*",
        "--type",
        "v2-*",
        "--count",
        "2",
        "--every",
        "1h",
        "-p",
        "notice=30s",
    ]
    code, out = _run(yard, monkeypatch, "add", *words, "-o", "json")
    assert code == 0, out
    made = json.loads(out)
    assert (made["match"], made["every"], made["notice"]) == (
        {"zone": "us-*", "acceleratorType": "v2-*"},
        3600,
        30,
    )
    assert made["fault"] in _run(yard, monkeypatch, "list")[1]
    _run(yard, monkeypatch, "add", "stockout")
    assert _run(yard, monkeypatch, "rm", made["fault"])[0] == 0
    assert len(yard.ok("GET", FAULTS)["faults"]) == 1
    assert _run(yard, monkeypatch, "rm", "--all")[0] == 0
    assert yard.ok("GET", FAULTS)["faults"] == []


def test_a_scenario_file_is_added_whole_or_not_at_all(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(
        "seed: 1\nfaults:\n- {effect: stockout, until: 2h}\n- effect: preempt\n  every: 1x\n"
    )
    code, out = _run(yard, monkeypatch, "add", "-f", str(file))
    assert code != 0
    assert f"{file}: line 5: faults[1].every" in out
    assert yard.ok("GET", FAULTS)["faults"] == []
    file.write_text(
        "faults:\n- {effect: stockout, from: 2026-03-02T00:00:00Z}\n- {effect: preempt, "
        "every: 1h}\n"
    )
    code, out = _run(yard, monkeypatch, "add", "-f", str(file))
    assert code == 0, out
    assert [item["effect"] for item in yard.ok("GET", FAULTS)["faults"]] == ["stockout", "preempt"]


def test_wrong_words_are_refused_with_what_is_wrong(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, text in (
        (["add"], "specify either"),
        (["add", "stockout", "-f", "x"], "specify either"),
        (["add", "-f", "/nowhere"], "cannot read"),
        (["add", "preempt", "-p", "notice"], "not KEY=VALUE"),
        (["add", "preempt", "--method", "nodes.get"], "match.method"),
        (["add", "meteor"], "effect"),
        (["rm"], "specify either"),
    ):
        code, out = _run(yard, monkeypatch, *words)
        assert code != 0
        assert text in out
    assert yard.ok("GET", FAULTS)["faults"] == []


def test_the_table_of_effects_is_shown(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out = _run(yard, monkeypatch, "effects")
    assert all(name in out for name in EFFECTS)
    assert "limit (required)" in out
