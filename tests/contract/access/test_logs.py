"""Cloud Logging and Cloud Monitoring over what there is: written entries, jobs' lines, the audit
log, the use of hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import RealTime
from podyard.control.jobs import log_entries
from podyard.db.platform import audit
from podyard.domain.audit import AuditLine
from tests.contract.access.google_calls import client, token_of
from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard, open_yard

LOGGING = "/google/logging.googleapis.com/v2"
WRITE, LIST = f"{LOGGING}/entries:write", f"{LOGGING}/entries:list"
MONITORING = "/google/monitoring.googleapis.com/v3/projects/demo"
START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


def _entry(text: str, second: int, **more: Any) -> dict[str, Any]:
    time = f"2026-03-01T00:00:{second:02d}Z"
    return {"textPayload": text, "timestamp": time, "insertId": f"i-{second:02d}", **more}


def _write(yard: Yard, *entries: dict[str, Any], **options: Any) -> dict[str, Any]:
    body = {"logName": "projects/demo/logs/my-log", "entries": list(entries)}
    return yard.ok("POST", WRITE, body, **options)


def _texts(yard: Yard, text: str, **more: Any) -> list[str]:
    body = {"resourceNames": ["projects/demo"], "filter": text, **more}
    return [entry["textPayload"] for entry in yard.ok("POST", LIST, body)["entries"]]


def test_what_was_written_is_listed_in_order(yard: Yard) -> None:
    _write(
        yard, _entry("b", 2, severity="ERROR"), _entry("a", 1), _entry("c", 3, labels={"k": "v"})
    )
    named = 'logName="projects/demo/logs/my-log"'
    assert _texts(yard, named) == ["a", "b", "c"]
    assert _texts(yard, named, orderBy="timestamp desc") == ["c", "b", "a"]
    assert _texts(yard, f"{named} severity>=WARNING") == ["b"]
    assert _texts(yard, f'{named} labels.k="v" timestamp>"2026-03-01T00:00:02Z"') == ["c"]
    with client(yard, "logging", "v2") as service:
        names = service.projects().logs().list(parent="projects/demo").execute()["logNames"]
    assert "projects/demo/logs/my-log" in names


def test_an_entry_that_is_sent_twice_is_one(yard: Yard) -> None:
    for _ in range(2):
        _write(yard, _entry("a", 1), _entry("a", 1))
    assert _texts(yard, "log_id(my-log)") == ["a"]


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_pages_hold_each_entry_once(yard: Yard, order: str) -> None:
    _write(yard, *(_entry(f"{number:02d}", number) for number in range(25)))
    with client(yard, "logging", "v2") as service:
        body = {
            "resourceNames": ["projects/demo"],
            "filter": 'log_id("my-log")',
            "orderBy": order,
            "pageSize": 10,
        }
        request, texts = service.entries().list(body=body), []
        while request is not None:
            page = request.execute()
            texts += [entry["textPayload"] for entry in page.get("entries", [])]
            request = service.entries().list_next(request, page)
    wanted = [f"{number:02d}" for number in range(25)]
    assert texts == (wanted if order.endswith("asc") else wanted[::-1])


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_entries_of_one_moment_are_listed_once_each(yard: Yard, order: str) -> None:
    """A batch without times has one: the server's."""
    for batch in range(3):
        _write(yard, *({"textPayload": f"{batch}-{number:03d}"} for number in range(900)))
    wanted = [f"{batch}-{number:03d}" for batch in range(3) for number in range(900)]
    body = {"resourceNames": ["projects/demo"], "orderBy": order, "pageSize": 1000}
    body["filter"] = 'log_id("my-log")'
    texts: list[str] = []
    for _ in range(10):
        page = yard.ok("POST", LIST, body)
        texts += [entry["textPayload"] for entry in page["entries"]]
        if "nextPageToken" not in page:
            break
        body["pageToken"] = page["nextPageToken"]
    assert texts == (wanted if order.endswith("asc") else wanted[::-1])


def test_a_token_continues_its_own_list_only(yard: Yard) -> None:
    _write(yard, _entry("a", 1), _entry("b", 2))
    body = {"resourceNames": ["projects/demo"], "filter": 'log_id("my-log")', "pageSize": 1}
    token = yard.ok("POST", LIST, body)["nextPageToken"]
    other = body | {"filter": "", "pageToken": token}
    assert yard.call("POST", LIST, other).status_code == 400
    assert yard.ok("POST", LIST, body | {"pageToken": token})["entries"][0]["textPayload"] == "b"


def test_no_other_project_is_written_or_read(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    _write(yard, _entry("secret", 1))
    stranger = token_of(yard, "thief@other.example", "owner", "other")
    foreign = {"logName": "projects/demo/logs/my-log", "entries": [_entry("x", 2)]}
    assert yard.call("POST", WRITE, foreign, headers=stranger).status_code == 403
    mixed = {
        "logName": "projects/other/logs/a",
        "entries": [_entry("x", 1), _entry("y", 2, logName="projects/demo/logs/b")],
    }
    assert yard.call("POST", WRITE, mixed, headers=stranger).status_code == 400
    assert yard.call("POST", WRITE, mixed).status_code == 400
    for names in (["projects/demo"], ["projects/other", "projects/demo"]):
        answer = yard.call("POST", LIST, {"resourceNames": names}, headers=stranger)
        assert answer.status_code == 403
    assert _texts(yard, "log_id(my-log)") == ["secret"]


@pytest.mark.parametrize(
    "body",
    [
        {"entries": [{"textPayload": "x"}]},
        {"logName": "my-log", "entries": [{"textPayload": "x"}]},
        {"logName": "projects/demo/logs/a b", "entries": [{"textPayload": "x"}]},
        {"logName": "projects/demo/logs/a", "entries": []},
        {"logName": "projects/demo/logs/a", "entries": [{"severity": "LOUD"}]},
        {"logName": "projects/demo/logs/a", "entries": [{"timestamp": "today"}]},
        {"logName": "projects/demo/logs/a", "entries": [{"textPayload": "x" * 300_000}]},
        {"logName": "projects/demo/logs/a", "entries": [{"nonsense": 1}]},
    ],
)
def test_a_wrong_entry_is_refused(yard: Yard, body: dict[str, Any]) -> None:
    assert yard.call("POST", WRITE, body).status_code == 400
    assert _texts(yard, "") == []


def test_the_oldest_entries_go_beyond_the_limit(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_entries, "ENTRIES_PER_PROJECT_MAX", 5)
    _write(yard, *(_entry(f"{number}", number) for number in range(8)))
    assert _texts(yard, "log_id(my-log)") == ["3", "4", "5", "6", "7"]


def test_lines_of_jobs_are_entries(yard: Yard) -> None:
    yard.create("n")
    gang = Gang(yard)
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10})
    yard.step()
    (replica,) = gang.sync()
    log = {"seq": 0, "lines": 1, "at": START.rfc3339(), "millis": 0, "text": "o0 hello\n"}
    assert gang.report(replica, log=log).status_code == 200
    body = {"resourceNames": ["projects/demo"], "filter": 'resource.type="tpu_worker"'}
    entries = yard.ok("POST", LIST, body)["entries"]
    (found,) = [entry for entry in entries if entry["textPayload"] == "hello"]
    assert found["logName"] == "projects/demo/logs/podyard.googleapis.com%2Fjobs"
    assert found["labels"]["podyard.googleapis.com/job"] == "j"
    assert found["resource"]["labels"] == {
        "project_id": "demo", "zone": ZONE, "node_id": "n", "worker_id": "0",
    }  # fmt: skip


def test_the_audit_log_of_a_project_is_its_owners(yard: Yard) -> None:
    path = "/google/cloudresourcemanager.googleapis.com/v1/projects"
    lines = [
        AuditLine(START, "ann@x.y", "127.0.0.1", False, "POST", f"{path}/{name}", 200, "r")
        for name in ("demo:setIamPolicy", "demo2:setIamPolicy", "other/demo")
    ]
    yard.database.run(lambda uow: audit.add(uow, lines))
    body = {"resourceNames": ["projects/demo"], "filter": "protoPayload:*"}
    owner = token_of(yard, "boss@corp.example", "owner")
    (entry,) = yard.ok("POST", LIST, body, headers=owner)["entries"]
    assert entry["protoPayload"]["authenticationInfo"] == {"principalEmail": "ann@x.y"}
    assert entry["protoPayload"]["resourceName"] == f"{path}/demo:setIamPolicy"
    viewer = token_of(yard, "ben@corp.example", "logging.viewer")
    assert yard.ok("POST", LIST, body, headers=viewer)["entries"] == []


def test_the_use_of_hosts_is_a_series(yard: Yard) -> None:
    yard.create("n")
    gang = Gang(yard)
    yard.ok("POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10})
    yard.step()
    (replica,) = gang.sync()
    for second in range(4):
        taken = {"cpuMicroseconds": second * 2_000_000, "memoryKibSeconds": second * 2**20}
        assert gang.report(replica, used=taken).status_code == 200
        yard.clock.advance(1)
    with client(yard, "monitoring", "v3") as service:
        projects = service.projects()
        described = projects.metricDescriptors().list(name="projects/demo").execute()
        types = {item["type"] for item in described["metricDescriptors"]}
        asked = {
            "name": "projects/demo",
            "interval_startTime": "2026-02-28T00:00:00Z",
            "interval_endTime": "2026-03-02T00:00:00Z",
        }
        values = {}
        for kind in sorted(types):
            answer = (
                projects.timeSeries()
                .list(**asked, filter=f'metric.type = "{kind}" AND resource.labels.node_id = "n"')
                .execute()
            )
            (series,) = answer["timeSeries"]
            assert series["resource"]["labels"]["worker_id"] == "0"
            values[kind] = series["points"][0]["value"]
    assert values["podyard.googleapis.com/host/cpu_cores"] == {"doubleValue": 2.0}
    assert values["tpu.googleapis.com/accelerator/duty_cycle"] == {"doubleValue": 0.0}
    assert values["tpu.googleapis.com/memory/usage"] == {"int64Value": str(2**30)}


@pytest.mark.parametrize(
    "query, words",
    [
        ("filter=", "is not supported"),
        ('filter=metric.type="tpu.googleapis.com/none"', "Cannot find metric"),
        ('filter=metric.type="x" OR true', "is not supported"),
    ],
)
def test_a_series_that_is_not_there_is_refused(yard: Yard, query: str, words: str) -> None:
    end = "interval.endTime=2026-03-02T00:00:00Z"
    answer = yard.call("GET", f"{MONITORING}/timeSeries?{query}&{end}")
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]["message"]
