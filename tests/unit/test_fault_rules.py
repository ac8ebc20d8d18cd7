"""What a fault rule may say, what it matches, and when it stands."""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from podyard.api.faults import FaultAnswer
from podyard.base.clock import ManualClock, PlatformTime, RealTime
from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError
from podyard.cli.nodes.faults import parameters_text
from podyard.domain.fault import (
    EFFECTS,
    Acts,
    FaultRule,
    Kind,
    Subject,
    parse_rule,
    parse_rules,
    rule_json,
)
from podyard.domain.fault_file import read_faults
from podyard.domain.host import NodeFacts, facts_of_json
from podyard.domain.node import UsageClass
from podyard.engine.training.store import FileStore
from podyard.hardware.accelerator_types import parse
from podyard.hardware.torus import box_mask
from podyard.scheduler.recovery import Recovery, decide, hosts_of_slice, links_of_slice
from podyard.workers.host.metadata import MetadataHandler, MetadataSource
from podyard.workers.replica.engine_replica import KeepingStore
from podyard.workers.replica.reporter import Reporter

NOW = PlatformTime.from_rfc3339("2026-03-01T00:00:00Z")
SPOT = Subject("us-central1-a", "v4-8", "demo", ("n", "projects/demo/nodes/n"), "nodes.get", "spot")


def rule(**fields: Any) -> FaultRule:
    return parse_rule({"effect": "stockout", **fields}, NOW)


def at(seconds: float) -> PlatformTime:
    return NOW.plus_seconds(seconds)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ("x", ""),
        ({}, "effect"),
        ({"effect": "meteor"}, "effect"),
        ({"effect": ["preempt"]}, "effect"),
        ({"effect": "preempt", "seconds": 1}, "seconds"),
        ({"effect": "preempt", "colour": 1}, "colour"),
        ({"effect": "preempt", "match": "n"}, "match"),
        ({"effect": "preempt", "match": {"nodes": "n"}}, "match.nodes"),
        ({"effect": "preempt", "match": {"method": "nodes.get"}}, "match.method"),
        ({"effect": "error", "match": {"acceleratorType": "v4-8"}}, "match.acceleratorType"),
        ({"effect": "quota", "limit": 1, "match": {"resource": "n"}}, "match.resource"),
        ({"effect": "jump", "seconds": 1, "match": {"zone": "a"}}, "match.zone"),
        ({"effect": "preempt", "match": {"zone": 3}}, "match.zone"),
        ({"effect": "preempt", "match": {"zone": ""}}, "match.zone"),
        ({"effect": "preempt", "probability": 1.5}, "probability"),
        ({"effect": "preempt", "probability": -0.1}, "probability"),
        ({"effect": "preempt", "probability": True}, "probability"),
        ({"effect": "preempt", "probability": "half"}, "probability"),
        ({"effect": "preempt", "count": 0}, "count"),
        ({"effect": "preempt", "count": 1.5}, "count"),
        ({"effect": "quota", "limit": 1, "count": 2}, "count"),
        ({"effect": "metadata", "probability": 0.5}, "probability"),
        ({"effect": "preempt", "from": "-1h"}, "from"),
        ({"effect": "preempt", "from": "soon"}, "from"),
        ({"effect": "preempt", "from": -1}, "from"),
        ({"effect": "preempt", "from": True}, "from"),
        ({"effect": "preempt", "from": "2026-13-01T00:00:00Z"}, "from"),
        ({"effect": "preempt", "from": "2h", "until": "1h"}, "until"),
        ({"effect": "preempt", "until": "2025-01-01T00:00:00Z"}, "until"),
        ({"effect": "preempt", "every": 0}, "every"),
        ({"effect": "preempt", "every": 0.5}, "every"),
        ({"effect": "stockout", "every": "1h"}, "every"),
        ({"effect": "preempt", "during": "create", "every": "1h"}, "every"),
        ({"effect": "preempt", "notice": -1}, "notice"),
        ({"effect": "preempt", "notice": "11000d"}, "notice"),
        ({"effect": "preempt", "during": "lunch"}, "during"),
        ({"effect": "chip", "chips": 0}, "chips"),
        ({"effect": "chip", "chips": 10**30}, "chips"),
        ({"effect": "error", "code": 404}, "code"),
        ({"effect": "error", "message": 5}, "message"),
        ({"effect": "latency", "seconds": 301}, "seconds"),
        ({"effect": "latency", "real": "yes"}, "real"),
        ({"effect": "dirty", "as": "FINE"}, "as"),
        ({"effect": "quota"}, "limit"),
        ({"effect": "late"}, "seconds"),
        ({"effect": "link", "factor": float("nan")}, "factor"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_field_that_is_wrong(data: Any, field: str) -> None:
    with pytest.raises(PodyardError) as caught:
        parse_rule(data, NOW)
    assert caught.value.code is Code.INVALID_ARGUMENT
    (detail,) = caught.value.details or [BadRequest((FieldViolation("", ""),))]
    assert isinstance(detail, BadRequest)
    assert detail.violations[0].field == field
    with pytest.raises(PodyardError, match=r"faults\[1\]"):
        parse_rules([{"effect": "stockout"}, data], NOW)


@pytest.mark.parametrize("name", EFFECTS)
def test_each_effect_can_be_had_with_what_it_must_say_alone_and_is_shown_as_it_may_be_given_again(
    name: str,
) -> None:
    needed = {key: 5 for key, parameter in EFFECTS[name].parameters.items() if parameter.required}
    made = parse_rule({"effect": name, **needed}, NOW)
    again = parse_rule(rule_json(made), NOW)
    assert again == made
    assert EFFECTS[name].text.endswith(".")
    assert set(EFFECTS[name].keys) <= {
        "zone",
        "acceleratorType",
        "project",
        "resource",
        "method",
        "usage",
    }


def test_times_and_durations_are_read_in_all_their_forms() -> None:
    made = parse_rule(
        {"effect": "maintenance", "from": "90s", "until": "1h30m", "every": "2m", "seconds": 7}, NOW
    )
    assert (made.starts, made.ends, made.every_seconds) == (at(90), at(5400), 120)
    assert made.parameters == {"seconds": 7.0}
    made = rule(**{"from": 30, "until": "2026-03-01T01:00:00+00:00"})
    assert (made.starts, made.ends) == (at(30), at(3600))
    assert rule(**{"from": "2020-01-01T00:00:00Z"}).starts == NOW  # what has begun begins now
    assert parse_rule({"effect": "late", "seconds": "2d"}, NOW).parameters == {"seconds": 172_800.0}
    assert parse_rule({"effect": "late", "seconds": "12"}, NOW).parameters == {"seconds": 12.0}


def test_a_rule_stands_between_its_times_and_until_it_has_struck_as_often_as_it_may() -> None:
    made = rule(**{"from": 10, "until": 20, "count": 2})
    assert [made.stands(at(seconds)) for seconds in (9, 10, 19, 20)] == [False, True, True, False]
    fields = {"effect": "stockout", "match": {}, "probability": 1.0, "starts": NOW, "ends": None}
    rest = {"every_seconds": None, "parameters": {}, "created": NOW, "fault_id": "f"}
    used = FaultRule(**fields, **rest, count=2, fired=2)  # type: ignore[arg-type]
    assert (used.times_left, used.stands(NOW)) == (0, False)
    assert not FaultRule(**fields, **rest, count=None, over=True).stands(NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({}, True),
        ({"zone": "us-*"}, True),
        ({"zone": "europe-*"}, False),
        ({"acceleratorType": "v4-*", "project": "demo"}, True),
        ({"acceleratorType": "v4-*", "project": "other"}, False),
        ({"resource": "n"}, True),
        ({"resource": "projects/*/nodes/n"}, True),
        ({"resource": "m"}, False),
        ({"usage": "spot"}, True),
        ({"usage": "SPOT"}, False),
        ({"usage": "[sp]*"}, True),
    ],
)
def test_every_pattern_has_to_fit(match: dict[str, str], fits: bool) -> None:
    assert rule(match=match).matches(SPOT) is fits


def test_a_preemption_takes_on_demand_nodes_only_where_it_says_so() -> None:
    bought = Subject("z", "v4-8", "demo", ("n",), "", "on-demand")
    assert not parse_rule({"effect": "preempt"}, NOW).matches(bought)
    assert parse_rule({"effect": "preempt", "match": {"usage": "*"}}, NOW).matches(bought)
    assert rule().matches(bought)


def test_only_what_happens_at_moments_is_an_event() -> None:
    events = {name for name, effect in EFFECTS.items() if effect.acts is Acts.EVENT}
    assert events == {"preempt", "host", "chip", "power", "link", "maintenance", "jump"}
    assert parse_rule({"effect": "preempt"}, NOW).is_event
    assert not parse_rule({"effect": "preempt", "during": "delete"}, NOW).is_event


def test_what_the_api_answers_names_every_parameter() -> None:
    known = get_type_hints(FaultAnswer)
    for effect in EFFECTS.values():
        assert set(effect.parameters) <= set(known)
        assert all(isinstance(parameter.kind, Kind) for parameter in effect.parameters.values())


def test_the_documents_table_is_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "faults.md").read_text(encoding="utf-8")
    for name, effect in EFFECTS.items():
        keys, parameters = ", ".join(effect.keys) or "-", parameters_text(effect) or "-"
        assert f"| `{name}` | {keys} | {parameters} | {effect.text} |" in page
    assert page.count("\n| `") == len(EFFECTS) + 6  # and the keys of a rule


class _Says:
    """An API that says that checkpoints cannot be written."""

    fail = True

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        del method, path
        self.said = dict(body or {})
        return {"desired": "RUN", "checkpointsFail": self.fail, "leaseSeconds": 15}


def test_while_checkpoints_cannot_be_written_a_replica_keeps_those_that_there_are(
    tmp_path: Path,
) -> None:
    api = _Says()
    reporter = Reporter(api, "r", 1, 15.0, 0, ManualClock(RealTime(0)), pytest.fail, lambda: None)
    store = KeepingStore(FileStore(tmp_path), reporter.writes_fail)
    store.put("old", b"1")
    reporter._send("RUNNING", None)
    store.delete("old")
    reporter.on_prune([3])
    reporter._send("RUNNING", None)
    assert (store.get("old"), api.said["pruned"]) == (b"1", [])
    api.fail = False
    reporter._send("RUNNING", None)
    store.delete("old")
    reporter.on_prune([4])
    reporter._send("RUNNING", None)
    assert (store.list(""), api.said["pruned"]) == ([], [4])


@pytest.mark.parametrize("path", ["/", "/computeMetadata/v1/instance/id"])
def test_a_metadata_server_that_is_down_answers_503(path: str) -> None:
    facts = NodeFacts(
        node_key="n", project="p", project_number=1, zone="us-central2-b", node_id="n", number=1,
        state="READY",
        accelerator_type="v4-16", topology="2x2x2", runtime_version="x", usage_class="spot",
        description="", tags=(),
        metadata={}, service_account="a", scopes=(), network="default",
        internal_ips=("10.128.0.2", "10.128.0.3"),
        external_ips=(), metadata_down=(1,),
    )  # fmt: skip

    async def token() -> tuple[str, int]:
        return "secret", 1

    def status(index: int) -> int:
        handler = MetadataHandler(MetadataSource(facts, index, 1, {}, token))
        return asyncio.run(handler.answer("GET", path, {"metadata-flavor": "Google"}, b"")).status

    assert (status(0), status(1)) == (200, 503)
    assert facts_of_json(facts.to_json()) == facts


@pytest.mark.parametrize(
    ("usage", "back", "patience", "what"),
    [
        (UsageClass.ON_DEMAND, 100, 0, Recovery.KEEP),
        (UsageClass.RESERVED, 100, 100, Recovery.KEEP),
        (UsageClass.RESERVED, 101, 100, Recovery.MOVE),
        (UsageClass.ON_DEMAND, None, 0, Recovery.MOVE),
        (UsageClass.SPOT, 1, 0, Recovery.LOSE),
        (UsageClass.PREEMPTIBLE, None, 0, Recovery.LOSE),
    ],
)
def test_what_becomes_of_a_slice_that_breaks(
    usage: UsageClass, back: int | None, patience: float, what: Recovery
) -> None:
    assert decide(usage, None if back is None else at(back), NOW, patience) is what


@pytest.mark.parametrize(
    ("pod", "kind", "origin", "shape"),
    [
        ((16, 16), "v3-32", (14, 0), (4, 4)),
        ((16, 16, 16), "v4-32", (0, 4, 8), (4, 2, 2)),
        ((4, 4), "v5litepod-1", (3, 2), (1, 1)),
        ((16, 16), "v5litepod-8", (2, 4), (4, 2)),
    ],
)
def test_the_hosts_of_a_slice_are_all_of_its_chips_once(
    pod: tuple[int, ...], kind: str, origin: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    wanted = parse(kind)
    chips = box_mask(pod, origin, shape)
    hosts = hosts_of_slice(pod, origin, shape, chips, wanted)
    assert len(hosts) == wanted.host_count
    assert sum(host.bit_count() for host in hosts) == wanted.chip_count
    assert functools.reduce(operator.or_, hosts) == chips
    for link in links_of_slice(pod, chips):
        assert (link.bit_count(), link & ~chips) == (2, 0)
    assert bool(links_of_slice(pod, chips)) == (wanted.chip_count > 1)


def test_cubes_from_all_over_a_pod_have_hosts_as_well() -> None:
    pod = (16, 16, 16)
    chips = box_mask(pod, (0, 0, 0), (4, 4, 4)) | box_mask(pod, (8, 8, 8), (4, 4, 4))
    hosts = hosts_of_slice(pod, (0, 0, 0), (4, 4, 8), chips, parse("v4-256"))
    assert len(hosts) == 32
    assert functools.reduce(operator.or_, hosts) == chips


FILE = """
seed: 3
faults:
  - effect: preempt
    from: 2026-03-01T00:00:00Z
    count: 2
  - effect: stockout
    match:
      zone: us-*
      {wrong}
    until: 2h
"""


def test_a_file_gives_its_rules_with_times_as_they_are_written() -> None:
    found = read_faults(FILE.replace("{wrong}", ""), "s.yaml")
    assert found[0] == {"effect": "preempt", "from": "2026-03-01T00:00:00Z", "count": 2}
    assert found[1] == {"effect": "stockout", "match": {"zone": "us-*"}, "until": "2h"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            FILE.replace("{wrong}", "method: nodes.get"),
            r"s.yaml: line 10: faults\[1\].match.method",
        ),
        (
            FILE.replace("{wrong}", "").replace("count: 2", "count: two"),
            r"s.yaml: line 6: faults\[0\].count",
        ),
        (
            FILE.replace("{wrong}", "").replace("stockout", "quota"),
            r"s.yaml: line 7: faults\[1\].limit",
        ),
        ("faults:\n- effect: late\n", r"s.yaml: line 2: faults\[0\].seconds: it is missing"),
        ("faults: {}", "line 1"),
        ("- 1", "line 1"),
        ("faults: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_field(text: str, where: str) -> None:
    with pytest.raises(PodyardError, match=where):
        read_faults(text, "s.yaml")
