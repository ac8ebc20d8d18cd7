"""Queued resources and reservations from outside: Podyard's own REST, and its command line over
Google's wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.kit.zones import resources
from podyard.cli.nodes import queue
from tests.yard import ZONE, Yard

OWN = f"/podyard/v1/projects/demo/locations/{ZONE}/reservations"


@pytest.fixture
def podyard(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    clients: list[Client] = []

    def client_of(_data: object, _project: object, location: str | None) -> Client:
        clients.append(Client(Target(yard.url, yard.token, "demo", location or ZONE)))
        return clients[-1]

    for module in (queue, resources):
        monkeypatch.setattr(module, "client_of", client_of)

    def call(*arguments: str, code: int = 0) -> Any:
        done = CliRunner().invoke(root, [*arguments, "--zone", ZONE], catch_exceptions=True)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    yield call
    for client in clients:
        client.close()


def test_a_reservation_over_rest(yard: Yard) -> None:
    body = {
        "generation": "v2",
        "size": 8,
        "capacityUnits": "CORES",
        "endTime": "2027-01-01T00:00:00Z",
    }
    made = yard.ok("POST", f"{OWN}?reservationId=r", body)
    assert made == {
        "name": f"projects/demo/locations/{ZONE}/reservations/r",
        "state": "ACTIVE",
        "generation": "v2",
        "capacityUnits": "CORES",
        "size": 8,
        "used": 0,
        "createTime": made["createTime"],
        "endTime": "2027-01-01T00:00:00Z",
    }
    assert yard.create("n", schedulingConfig={"reserved": True})["response"]["state"] == "READY"
    assert yard.ok("GET", f"{OWN}/r")["used"] == 8
    assert [item["used"] for item in yard.ok("GET", OWN.replace(ZONE, "-"))["reservations"]] == [8]
    assert "delete the nodes that use 8 CORES" in yard.refused(
        400, "FAILED_PRECONDITION", "DELETE", f"{OWN}/r"
    )
    yard.ok("DELETE", f"{yard.nodes()}/n")
    yard.step()
    assert yard.ok("DELETE", f"{OWN}/r") == {}
    yard.refused(404, "NOT_FOUND", "GET", f"{OWN}/r")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"generation": "v2"}, "size"),
        ({"generation": "v2", "size": "4"}, "size"),
        ({"generation": "v2", "size": 4, "extra": 1}, "extra"),
        ({"generation": "v2", "size": 4, "endTime": "tomorrow"}, "RFC 3339"),
    ],
)
def test_a_reservation_in_bad_form_is_refused_by_name(
    yard: Yard, body: dict[str, Any], text: str
) -> None:
    assert text in yard.refused(400, "INVALID_ARGUMENT", "POST", f"{OWN}?reservationId=r", body)
    assert "reservationId" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", OWN, {"generation": "v2", "size": 4}
    )


def test_the_command_line_queues_lists_resets_and_deletes(
    yard: Yard, podyard: Callable[..., Any]
) -> None:
    flags = ("--accelerator-type", "v2-8", "--runtime-version", "tpu-vm-base", "--spot")
    podyard("qr", "create", "q", "--node-count", "2", "--node-prefix", "s", *flags)
    yard.step()
    (found,) = json.loads(podyard("qr", "list", "-o", "json").stdout)
    assert (found["state"]["state"], found["spot"]) == ("ACTIVE", {})
    assert podyard("qr", "list").stdout.splitlines()[1].split() == [
        "q",
        ZONE,
        "2",
        "v2-8",
        "ACTIVE",
        "-",
    ]
    assert "queuedResources/q" in podyard("qr", "describe", "q").stdout
    assert {node["name"].rsplit("/", 1)[-1] for node in yard.ok("GET", yard.nodes())["nodes"]} == {
        "s-0",
        "s-1",
    }
    yard.call("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/s-0:preempt", {})
    yard.step()
    podyard("qr", "reset", "q")
    yard.step()
    yard.step()
    assert (
        json.loads(podyard("qr", "describe", "q", "-o", "json").stdout)["state"]["state"]
        == "ACTIVE"
    )
    assert "use force" in str(podyard("qr", "delete", "q", "-q", code=1).exception)


def test_the_command_line_asks_for_best_effort_and_for_long_waits(
    yard: Yard, podyard: Callable[..., Any]
) -> None:
    flags = ("--node-id", "n", "--accelerator-type", "v2-8", "--runtime-version", "tpu-vm-base")
    podyard("qr", "create", "q", *flags, "--best-effort", "--valid-until-duration", "31536000.5")
    yard.step()
    (found,) = json.loads(podyard("qr", "list", "-o", "json").stdout)
    assert (found["bestEffort"], found["state"]["state"]) == ({}, "ACTIVE")
    assert found["queueingPolicy"]["validUntilDuration"] in ("31536000.5s", "31536000.500s")


def test_the_command_line_refuses_flags_that_contradict(podyard: Callable[..., Any]) -> None:
    flags = ("qr", "create", "q", "--accelerator-type", "v2-8", "--runtime-version", "tpu-vm-base")
    assert "--node-id for one node" in podyard(*flags, code=2).stderr
    assert (
        "cannot be combined"
        in podyard(*flags, "--node-id", "n", "--spot", "--reserved", code=2).stderr
    )
    assert (
        "--reservation requires --reserved"
        in podyard(*flags, "--node-id", "n", "--reservation", "r", code=2).stderr
    )


def test_the_command_line_makes_a_reservation_and_what_it_serves(
    yard: Yard, podyard: Callable[..., Any]
) -> None:
    podyard("reservation", "create", "r", "--generation", "v2", "--size", "4")
    flags = (
        "--accelerator-type",
        "v2-8",
        "--runtime-version",
        "tpu-vm-base",
        "--reserved",
        "--reservation",
        "r",
    )
    podyard("qr", "create", "q", "--node-id", "n", *flags)
    yard.step()
    assert podyard("reservation", "list").stdout.splitlines()[1].split() == [
        "r",
        ZONE,
        "v2",
        "4",
        "4",
        "CHIPS",
        "ACTIVE",
    ]
    yard.ok("DELETE", f"{yard.nodes()}/n")
    yard.step()
    podyard("qr", "delete", "q", "-q")
    podyard("reservation", "delete", "r", "-q")
    assert yard.ok("GET", OWN) == {"reservations": []}
