"""Savings of spot nodes count the time without a job."""

from __future__ import annotations

from pathlib import Path

from podyard.control.billing import costs
from podyard.domain.principal import PLATFORM
from podyard.pricing.current_card import default_rate_card
from tests.yard import open_yard


def test_a_spot_node_without_a_job_has_saved_money(tmp_path: Path) -> None:
    with open_yard(tmp_path) as yard:
        yard.create("s1", schedulingConfig={"spot": True})
        yard.create("plain")
        yard.step(300)
        found = yard.database.read(lambda uow: costs.costs(uow, default_rate_card(), PLATFORM, "demo"))
        saved = {node.name.rsplit("/", 1)[-1]: node.idle_saved for node in found.nodes}
        usage = {node["node"].rsplit("/", 1)[-1]: node for node in yard.usage()["nodes"]}
        assert saved["plain"] == 0
        assert float(saved["s1"]) == float(usage["plain"]["amount"]) - float(usage["s1"]["amount"])
