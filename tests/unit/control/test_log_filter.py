"""Filters of log entries, in Logging's query language."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.base.clock import RealTime
from podyard.base.errors import PodyardError
from podyard.domain.observed import log_filter
from podyard.domain.observed.log_entry import LogEntry, severity_name

ENTRY = LogEntry(
    project="demo",
    log_id="my/log",
    at=RealTime.from_rfc3339("2026-03-01T12:00:00Z"),
    received=RealTime.from_rfc3339("2026-03-01T12:00:01Z"),
    severity=500,
    insert_id="i-1",
    resource_type="tpu_worker",
    resource_labels={"zone": "us-central1-f", "worker_id": "3"},
    labels={"podyard.googleapis.com/job": "j1", "team": "vision"},
    text="Out of memory: 17 GiB",
)
JSON = dataclasses.replace(
    ENTRY, text=None, payload={"step": 12, "loss": {"train": 0.5}, "tags": ["a", "b"], "ok": True}
)


@pytest.mark.parametrize(
    "text, passes",
    [
        ("", True),
        ('resource.type="tpu_worker"', True),
        ("resource.type=tpu_worker", True),
        ('resource.type = "gce_instance"', False),
        ('resource.type != "gce_instance"', True),
        ('logName="projects/demo/logs/my%2Flog"', True),
        ('logName:"my%2F"', True),
        ('log_id("my/log")', True),
        ('log_id("other")', False),
        ("severity>=ERROR", True),
        ("severity>ERROR", False),
        ("severity=error", True),
        ("severity<=400", False),
        ('timestamp>="2026-03-01T00:00:00Z"', True),
        ('timestamp>="2026-03-01T00:00:00Z" timestamp<"2026-03-01T12:00:00Z"', False),
        ('timestamp>"2026-02-28"', True),
        ('textPayload:"out of"', True),
        ('textPayload="out of"', False),
        ('textPayload=~"^Out .* GiB$"', True),
        ('textPayload=~"memory|disk"', True),
        ('textPayload=~"^memory"', False),
        ('textPayload!~"memory"', False),
        ('labels.team="vision"', True),
        ('labels."podyard.googleapis.com/job"="j1"', True),
        ('labels.podyard.googleapis.com/job="j1"', True),
        ("labels.none:*", False),
        ("labels.team:*", True),
        ('resource.labels.worker_id=("3" OR "4")', True),
        ('resource.labels.worker_id=("4" OR "5")', False),
        ("memory", True),
        ('"OUT of"', True),
        ("-memory", False),
        ("NOT severity<ERROR", True),
        # OR binds tighter than AND
        ("severity=INFO AND memory OR tpu_worker", False),
        ("(severity=INFO AND memory) OR tpu_worker", True),
        ("severity=ERROR\n-- a comment\nmemory", True),
        ("NOT (memory AND vision)", False),
    ],
)
def test_a_filter_tests_an_entry(text: str, passes: bool) -> None:
    assert log_filter.read(text).test(ENTRY) is passes


@pytest.mark.parametrize(
    "text, passes",
    [
        ("jsonPayload.step>9", True),
        ("jsonPayload.step=12", True),
        ("jsonPayload.loss.train<0.4", False),
        ('jsonPayload.tags="b"', True),
        ("jsonPayload.ok=true", True),
        ("jsonPayload.none=1", False),
        ("textPayload:memory", False),
    ],
)
def test_a_filter_looks_into_payloads(text: str, passes: bool) -> None:
    assert log_filter.read(text).test(JSON) is passes


@pytest.mark.parametrize(
    "text",
    [
        "severity>=LOUD",
        "timestamp>yesterday",
        "(severity=ERROR",
        "severity=ERROR)",
        "severity=",
        "=x",
        'textPayload=~"(a+)+$"',
        'textPayload=~"[a-z]"',
        "NOT " * 100 + "x",
        "x" * 30_000,
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(PodyardError):
        log_filter.read(text)


def test_bounds_of_time_are_those_of_every_entry() -> None:
    since, until = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"
    both = log_filter.read(f'timestamp>="{since}" AND (memory timestamp<"{until}")')
    assert both.since == RealTime.from_rfc3339(since)
    assert both.until == RealTime.from_rfc3339(until)
    for text in (f'timestamp>="{since}" OR memory', f'NOT timestamp>="{since}"'):
        loose = log_filter.read(text)
        assert (loose.since, loose.until) == (None, None)


def test_severities_have_googles_names() -> None:
    assert [severity_name(number) for number in (0, 150, 500, 800)] == [
        "DEFAULT", "DEBUG", "ERROR", "EMERGENCY",
    ]  # fmt: skip
