"""Savings of spot nodes count the time without a job."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.money import bill
from podyard.control.billing import costs
from podyard.control.billing.costs import Costs, Needed
from podyard.domain.principal import PLATFORM
from podyard.pricing.current_card import default_rate_card
from tests.yard import ZONE, open_yard


def test_free_seconds_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_yard(tmp_path, clock_mode="virtual") as yard:
        yard.create("s1", schedulingConfig={"spot": True})
        yard.create("plain")
        yard.step(43)
        yard.ok("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/s1:preempt", {})
        yard.step(100)
        used = {node["node"].rsplit("/", 1)[-1]: node for node in yard.usage()["nodes"]}
        assert used["s1"]["waivedBecause"] == "free: preempted 43 s after it became READY"
        assert used["s1"]["seconds"] == 0
        assert "waivedBecause" not in used["plain"]
        with contextlib.closing(Client(Target(yard.url, yard.token, "demo", ZONE))) as client:
            monkeypatch.setattr(bill, "client_of", lambda *_: client)
            shown = CliRunner().invoke(root, ["bill", "show"]).output
        assert (
            f"s1: {used['s1']['waivedSeconds']} s are free: preempted 43 s after it became READY"
            in shown
        )


def test_runs_and_spot_meter_a_part_to_the_same_costs(tmp_path: Path) -> None:
    with open_yard(tmp_path, clock_mode="virtual") as yard:
        yard.create("s1", schedulingConfig={"spot": True})
        yard.create("plain")
        yard.step(300)

        def of(needed: Needed) -> Costs:
            card = default_rate_card()
            return yard.database.read(
                lambda uow: costs.costs(uow, card, PLATFORM, "demo", None, needed)
            )

        whole, spot, jobs = of(Needed.ALL), of(Needed.SPOT), of(Needed.JOBS)
        assert [node.name.rsplit("/", 1)[-1] for node in whole.nodes] == ["plain", "s1"]
        assert list(spot.nodes) == [node for node in whole.nodes if node.idle_on_demand is not None]
        assert list(jobs.nodes) == []
        wanted = {"acceleratorType": "v2-32", "location": "us-central1-a", "years": 1}
        yard.ok("POST", "/podyard/v1/projects/demo/commitments", wanted)
        assert of(Needed.SPOT).nodes == of(Needed.ALL).nodes, (
            "what a commitment covers depends on all nodes"
        )


def test_a_spot_node_without_a_job_has_saved_money(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        yard.create("s1", schedulingConfig={"spot": True})
        yard.create("plain")
        yard.step(300)
        found = yard.database.read(
            lambda uow: costs.costs(uow, default_rate_card(), PLATFORM, "demo")
        )
        saved = {node.name.rsplit("/", 1)[-1]: node.idle_saved for node in found.nodes}
        usage = {node["node"].rsplit("/", 1)[-1]: node for node in yard.usage()["nodes"]}
        assert saved["plain"] == 0
        assert float(saved["s1"]) == float(usage["plain"]["amount"]) - float(usage["s1"]["amount"])
