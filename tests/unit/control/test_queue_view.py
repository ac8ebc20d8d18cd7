"""The queue as REST and as `podyard queue list` show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli.nodes import queue as queue_commands
from podyard.domain.fleet_file import load_fleet
from tests.yard import Yard, open_yard

FLEET = load_fleet("zones: {us-central1-f: {v2: {shape: 4x4}}, us-central1-c: {v2: {shape: 4x4}}}")
PATH = "/podyard/v1/projects/demo/locations"

pytestmark = pytest.mark.slow  # a server and a database for each test


def _fill_and_queue(yard: Yard) -> None:
    limited = {"schedulingConfig": {"preemptible": True}}  # it ends after 24 hours
    for zone in ("us-central1-f", "us-central1-c"):
        assert "error" not in yard.create("old", "v2-32", zone, **limited)
        node = {"acceleratorType": "v2-32", "runtimeVersion": "tpu-vm-base"}
        spec = {"parent": f"projects/demo/locations/{zone}", "nodeId": "n", "node": node}
        body = {"tpu": {"nodeSpec": [spec]}, "spot": {}}
        yard.ok(
            "POST", f"/v2/projects/demo/locations/{zone}/queuedResources?queuedResourceId=q", body
        )
    yard.step()


def test_the_queue_of_a_zone_and_of_all(tmp_path: Path) -> None:
    with open_yard(tmp_path, FLEET) as yard:
        assert yard.ok("GET", f"{PATH}/-/queue") == {"waiting": []}
        _fill_and_queue(yard)
        (row,) = yard.ok("GET", f"{PATH}/us-central1-f/queue")["waiting"]
        assert row["name"] == "projects/demo/locations/us-central1-f/queuedResources/q"
        assert (row["kind"], row["position"], row["acceleratorType"], row["priority"]) == (
            "queuedResource",
            1,
            "v2-32",
            0,
        )
        assert row["predictedStart"] > row["waitingSince"]
        assert f"held for it from {row['predictedStart']} on" in row["reason"]
        page = yard.ok("GET", f"{PATH}/-/queue?pageSize=1")
        rest = yard.ok("GET", f"{PATH}/-/queue?pageSize=1&pageToken={page['nextPageToken']}")
        names = [item["name"] for item in (*page["waiting"], *rest["waiting"])]
        assert sorted(names) == [
            f"projects/demo/locations/us-central1-{z}/queuedResources/q" for z in "cf"
        ]
        assert yard.ok("GET", "/podyard/v1/projects/other/locations/-/queue") == {"waiting": []}


def test_the_command_lists_it_in_three_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_yard(tmp_path, FLEET) as yard:
        _fill_and_queue(yard)
        monkeypatch.setenv("PODYARD_URL", yard.url)
        monkeypatch.setenv("PODYARD_TOKEN", yard.token)
        table, found = (
            CliRunner().invoke(queue_commands.queue, ["list", *words])
            for words in ((), ("-o", "json"))
        )
        assert table.exit_code == 0, table.output
        heading, *rows = table.output.splitlines()
        assert heading.split()[:5] == ["POSITION", "KIND", "NAME", "ZONE", "ACCELERATOR_TYPE"]
        assert sorted(row.split()[:4] for row in rows) == [
            ["1", "queuedResource", "q", zone] for zone in ("us-central1-c", "us-central1-f")
        ]
        assert len(json.loads(found.output)) == 2
