"""Requests that no client sends on a good day: each is refused in words, and nothing of it stays
behind."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build

from podyard.domain.fleet_file import load_fleet
from tests.stack import PODYARD, open_stack, until
from tests.yard import ZONE, Yard, open_yard

BODY: dict[str, Any] = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
PARENT = f"projects/demo/locations/{ZONE}"
QUEUED = f"/v2/{PARENT}/queuedResources"
ALPHA = f"/v2alpha1/{PARENT}/queuedResources"
DISK = {"sourceDisk": f"projects/demo/zones/{ZONE}/disks/data", "mode": "READ_WRITE"}
LONGEST = "3153600000s"
SLOW_FLEET = """
zones:
  us-central1-f: {v2: {shape: 4x4}, v4: {shape: 4x4x4}}
timings: {maintenance_seconds: 60}
"""


def _queued(node: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"tpu": {"nodeSpec": [{"nodeId": "n", "node": BODY, **(node or {})}]}, **fields}


def _wrong(yard: Yard, method: str, path: str, body: Any) -> str:
    return yard.refused(400, "INVALID_ARGUMENT", method, path, body)


@pytest.mark.parametrize(
    ("disks", "text"),
    [
        ([{"mode": 1}], "dataDisks[0].sourceDisk is required"),
        ([DISK, {"sourceDisk": "", "mode": 1}], "dataDisks[1].sourceDisk is required"),
        ([DISK, DISK], "is listed twice"),
    ],
)
def test_a_data_disk_has_a_name_that_no_other_has(yard: Yard, disks: list[Any], text: str) -> None:
    assert text in _wrong(yard, "POST", f"{yard.nodes()}?nodeId=a", {**BODY, "dataDisks": disks})
    yard.create("a")
    assert text in _wrong(
        yard, "PATCH", f"{yard.nodes()}/a?updateMask=dataDisks", {"dataDisks": disks}
    )
    assert "dataDisks" not in yard.ok("GET", f"{yard.nodes()}/a")


def test_half_a_surrogate_pair_as_a_name_is_refused_in_valid_json(yard: Yard) -> None:
    answer = yard.http.post(f"{yard.nodes()}?nodeId=a", content=b'{"\\ud800": 1}')
    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2030-01-01T00:00:00+99:99"]
)
@pytest.mark.parametrize("field", ["validUntilTime", "validAfterTime"])
def test_a_time_that_cannot_be_kept_is_refused(yard: Yard, field: str, text: str) -> None:
    _wrong(yard, "POST", f"{QUEUED}?queuedResourceId=q", _queued(queueingPolicy={field: text}))
    assert yard.ok("GET", QUEUED) == {"queuedResources": []}


@pytest.mark.parametrize("text", ["999999999999s", "3153600001s", "0s", "-1s"])
@pytest.mark.parametrize(
    "path",
    [
        "queueingPolicy.validUntilDuration",
        "queueingPolicy.validAfterDuration",
        "runDuration.maxRunDuration",
        "guaranteed.minDuration",
    ],
)
def test_a_duration_that_nobody_can_wait_for_is_refused(yard: Yard, path: str, text: str) -> None:
    message, name = path.split(".")
    told = _wrong(yard, "POST", f"{ALPHA}?queuedResourceId=q", _queued(**{message: {name: text}}))
    assert path in told


def test_the_longest_durations_can_be_kept(yard: Yard) -> None:
    body = _queued(
        queueingPolicy={"validUntilDuration": LONGEST}, runDuration={"maxRunDuration": LONGEST}
    )
    yard.ok("POST", f"{ALPHA}?queuedResourceId=q", body)
    yard.step()
    assert yard.ok("GET", f"{ALPHA}/q")["state"]["state"] == "ACTIVE"
    assert (
        "terminationTimestamp" in yard.ok("GET", f"/v2alpha1/{PARENT}/nodes/n")["schedulingConfig"]
    )


@pytest.mark.parametrize("several", [{}, {"nodeCount": 0}, {"nodeIdPrefix": "s"}])
def test_a_multislice_without_a_count_is_not_taken_for_one_node(
    yard: Yard, several: dict[str, Any]
) -> None:
    body = {"tpu": {"nodeSpec": [{"node": BODY, "multisliceParams": several}]}}
    assert "nodeCount is 0" in _wrong(yard, "POST", f"{QUEUED}?queuedResourceId=q", body)


@pytest.mark.parametrize(
    "parent",
    [
        f"projects/other/locations/{ZONE}",
        "projects/demo/locations/us-central1-a",
        f"a/{ZONE}",
        "projects/demo",
    ],
)
def test_a_node_of_another_parent_is_refused(yard: Yard, parent: str) -> None:
    assert "parent is" in _wrong(
        yard, "POST", f"{QUEUED}?queuedResourceId=q", _queued({"parent": parent})
    )


@pytest.mark.parametrize("parent", [PARENT, f"projects/123456789012/locations/{ZONE}"])
def test_a_parent_may_name_the_project_by_its_number(yard: Yard, parent: str) -> None:
    yard.ok("POST", f"{QUEUED}?queuedResourceId=q", _queued({"parent": parent}))


@pytest.mark.parametrize(
    "name",
    [
        f"projects/other/locations/{ZONE}/reservations/-",
        "projects/demo/locations/us-central1-a/reservations/r",
        f"{PARENT}/reservations/",
        f"{PARENT}/reservations/a/b",
        "junk",
    ],
)
def test_a_reservation_of_another_place_is_refused_rather_than_waited_for(
    yard: Yard, name: str
) -> None:
    text = _wrong(yard, "POST", f"{QUEUED}?queuedResourceId=q", _queued(reservationName=name))
    assert text.startswith("reservationName")
    node = {**BODY, "schedulingConfig": {"reservationName": name}}
    _wrong(yard, "POST", f"/v2alpha1/{PARENT}/nodes?nodeId=a", node)


@pytest.mark.parametrize("mask", ["networkConfig.enableExternalIps", "networkConfig"])
def test_one_network_cannot_be_set_beside_several(yard: Yard, mask: str) -> None:
    for name in ("one", "two"):
        body = {"name": name, "autoCreateSubnetworks": True}
        yard.ok("POST", "/compute/v1/projects/demo/global/networks", body)
    yard.create("a", networkConfigs=[{"network": "one"}, {"network": "two"}])
    before = yard.ok("GET", f"{yard.nodes()}/a")
    body = {"networkConfig": {"enableExternalIps": True}}
    assert "networkConfig cannot be set" in _wrong(
        yard, "PATCH", f"{yard.nodes()}/a?updateMask={mask}", body
    )
    assert yard.ok("GET", f"{yard.nodes()}/a") == before


@pytest.mark.parametrize("name", ["Authorization", "X-Goog-Api-Key"])
def test_two_credentials_of_one_kind_are_refused_in_either_order(yard: Yard, name: str) -> None:
    good = f"Bearer {yard.token}"
    for values in itertools.permutations((good, "Bearer x")):
        headers = [(name, value) for value in values]
        answer = yard.bare.get(yard.nodes(), headers=headers)
        assert answer.status_code == 400, answer.text
        assert f"more than one {name.lower()} header" in answer.json()["error"]["message"]


@pytest.mark.parametrize("collection", ["acceleratorTypes", "runtimeVersions"])
def test_what_zones_offer_is_listed_for_all_zones_and_for_projects_that_are_there(
    yard: Yard, collection: str
) -> None:
    everywhere = yard.ok("GET", f"/v2/projects/demo/locations/-/{collection}?pageSize=1000")[
        collection
    ]
    names = [item["name"] for item in everywhere]
    assert len(set(names)) == len(names)
    here = yard.ok("GET", f"/v2/{PARENT}/{collection}")[collection]
    assert here == [item for item in everywhere if item["name"].startswith(f"{PARENT}/")]
    assert len(here) < len(everywhere)
    _wrong(yard, "GET", f"/v2/projects/demo/locations/-/{collection}/v2-8", None)
    yard.refused(404, "NOT_FOUND", "GET", f"/v2/projects/missing/locations/{ZONE}/{collection}")
    yard.refused(404, "NOT_FOUND", "GET", f"/v2/projects/missing/locations/{ZONE}")


def _window(yard: Yard, start: float, end: float) -> dict[str, Any]:
    now = yard.clock.now()
    return {
        "windowStartTime": now.plus_seconds(start).rfc3339(),
        "windowEndTime": now.plus_seconds(end).rfc3339(),
    }


def _schedule(node: str) -> str:
    return f"/podyard/v1/{PARENT}/nodes/{node}:scheduleMaintenance"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"windowStartTime": "2026-02-28T00:00:00Z"}, "must start in the future"),
        ({"windowEndTime": "2026-03-01T00:00:10Z"}, "must start in the future"),
        ({"windowEndTime": "2026-03-01T00:00:59Z"}, "the maintenance window is too short"),
        (
            {"latestWindowStartTime": "2026-03-02T00:00:00Z"},
            "must be within the maintenance window",
        ),
        ({"type": "ZORK"}, "use SCHEDULED, UNSCHEDULED"),
        ({"windowStartTime": "soon"}, "is not an RFC 3339 time"),
        ({"windowEndTime": "9999-12-31T23:59:59Z"}, "years range from 1678 to 2261"),
        ({"canReschedule": "yes"}, "canReschedule"),
        ({"zork": 1}, 'Unknown name "zork"'),
    ],
)
def test_a_maintenance_that_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with open_yard(tmp_path, load_fleet(SLOW_FLEET), clock_mode="system") as yard:
        yard.create("a", "v4-8", runtimeVersion="tpu-ubuntu2204-base")
        assert text in _wrong(yard, "POST", _schedule("a"), {**_window(yard, 20, 600), **changes})
        assert "upcomingMaintenance" not in yard.ok("GET", f"{yard.nodes()}/a")


def test_a_planned_maintenance_is_shown_and_performed_once(tmp_path: Path) -> None:
    with open_yard(tmp_path, load_fleet(SLOW_FLEET), clock_mode="system") as yard:
        yard.create(
            "a", "v4-8", runtimeVersion="tpu-ubuntu2204-base", schedulingConfig={"spot": True}
        )
        planned = yard.ok("POST", _schedule("a"), {**_window(yard, 20, 600), "type": "UNSCHEDULED"})
        assert planned["upcomingMaintenance"] == {
            "type": "UNSCHEDULED",
            "canReschedule": True,
            "windowStartTime": "2026-03-01T00:00:20Z",
            "windowEndTime": "2026-03-01T00:10:00Z",
            "latestWindowStartTime": "2026-03-01T00:00:20Z",
            "maintenanceStatus": "PENDING",
        }
        perform = f"/v2alpha1/{PARENT}/nodes/a:performMaintenance"
        begun = yard.ok("POST", perform, {})
        assert (
            yard.ok("GET", f"{yard.nodes()}/a")["upcomingMaintenance"]["maintenanceStatus"]
            == "ONGOING"
        )
        yard.refused(400, "FAILED_PRECONDITION", "POST", perform, {})
        yard.refused(400, "FAILED_PRECONDITION", "POST", _schedule("a"), _window(yard, 20, 600))
        yard.clock.advance(60)
        yard.step()
        done = yard.ok("GET", f"/v2alpha1/{begun['name']}")
        assert (done["done"], done["response"]["state"]) == (True, "READY")
        assert "upcomingMaintenance" not in yard.ok("GET", f"{yard.nodes()}/a")


def test_a_node_that_is_lost_during_its_maintenance_says_nothing_of_it_any_more(
    tmp_path: Path,
) -> None:
    with open_yard(tmp_path, load_fleet(SLOW_FLEET), clock_mode="system") as yard:
        yard.create(
            "a", "v4-8", runtimeVersion="tpu-ubuntu2204-base", schedulingConfig={"spot": True}
        )
        yard.ok("POST", _schedule("a"), _window(yard, 20, 600))
        begun = yard.ok("POST", f"/v2alpha1/{PARENT}/nodes/a:performMaintenance", {})
        yard.ok("POST", f"/podyard/v1/{PARENT}/nodes/a:preempt", {})
        lost = yard.ok("GET", f"{yard.nodes()}/a")
        assert lost["state"] == "PREEMPTED"
        assert {"healthDescription", "upcomingMaintenance"} & set(lost) == set()
        assert yard.ok("GET", f"/v2alpha1/{begun['name']}")["error"]["code"] == 1
        _wrong(yard, "POST", _schedule("a"), _window(yard, 20, 600))


def test_who_may_not_plan_a_maintenance_learns_nothing(yard: Yard) -> None:
    yard.create("a")
    body = {"email": "ann@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    token = yard.ok("POST", "/podyard/v1/tokens", body)["token"]
    texts = set()
    for node in ("a", "b"):
        answer = yard.bare.post(
            _schedule(node), json={}, headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 403
        texts.add(answer.text.replace(f"nodes/{node}", "nodes/X"))
    assert len(texts) == 1
    yard.refused(404, "NOT_FOUND", "POST", _schedule("b"), _window(yard, 20, 600))


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.xdist_group("contract")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_host_is_told_of_its_maintenance_and_googleapiclient_performs_it(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "zones: {us-central1-f: {v4: {shape: 4x4x4}}}\ntimings: {maintenance_seconds: 2}\n"
    )
    with open_stack(tmp_path / "data", {"PODYARD_FLEET": str(fleet)}) as stack:
        stack.create_node("a", "v4-8", ZONE, runtimeVersion="tpu-ubuntu2204-base")
        own = f"/podyard/v1/{PARENT}/nodes/a"
        until(lambda: stack.call("GET", "/podyard/v1/agents")["agents"] or None, 30, "an agent")
        stack.call("POST", f"{own}:materialise", {})

        def address() -> str | None:
            return str(stack.call("GET", f"{own}/hosts")["hosts"][0]["metadataAddress"]) or None

        instance = f"http://{until(address, 30, 'the metadata server')}/computeMetadata/v1/instance"

        def told(key: str, text: str) -> bool | None:
            found = httpx.get(
                f"{instance}/{key}", headers={"Metadata-Flavor": "Google"}, verify=False
            )
            return (found.status_code == 200 and text in found.text) or None

        assert told("maintenance-event", "NONE")
        where = ["--data", str(stack.data), "--zone", ZONE]
        window = ["--start", "2100-01-01T00:00:00Z", "--end", "2100-01-02T00:00:00Z"]
        command = [*PODYARD, "tpu", "schedule-maintenance", "a", *where, *window]
        planned = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert planned.returncode == 0, planned.stderr
        until(
            lambda: told("upcoming-maintenance/maintenance_status", "PENDING"),
            10,
            "the upcoming maintenance",
        )
        credentials = Credentials(stack.token)
        with build(
            "tpu",
            "v2alpha1",
            credentials=credentials,
            client_options={"api_endpoint": stack.url},
            cache_discovery=False,
        ) as service:
            members = service.projects().locations().nodes()
            name = f"{PARENT}/nodes/a"
            members.simulateMaintenanceEvent(name=name, body={"workerIds": ["0"]}).execute()
            until(
                lambda: told("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"), 10, "the event"
            )
            until(lambda: told("maintenance-event", "NONE"), 10, "the end of the event")
            begun = members.performMaintenance(name=name, body={}).execute()
            assert members.get(name=name).execute()["state"] == "REPAIRING"

        def done() -> dict[str, Any] | None:
            found = stack.call("GET", f"/v2alpha1/{begun['name']}")
            return found if found["done"] else None

        assert until(done, 15, "the maintenance")["response"]["state"] == "READY"
        assert "upcomingMaintenance" not in stack.call("GET", f"/v2/{PARENT}/nodes/a")
