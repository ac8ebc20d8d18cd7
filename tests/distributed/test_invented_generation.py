"""A generation is data: one that does not exist is placed, priced, estimated and billed from three
files."""

from __future__ import annotations

import json
import os
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from podyard.hardware.generations import VARIABLE
from tests.stack import PODYARD, Stack
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

FILES = Path(__file__).parents[1] / "data" / "invented"
ENV = {VARIABLE: str(FILES / "v9x.py"), "PODYARD_RATE_CARD": str(FILES / "rate_card.yaml")}
ZONE = "us-central1-x"
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"
RUNTIME = "v2-alpha-tpuv9x"
USD_PER_CHIP_SECOND = Fraction("3.6") / 3600


def test_a_generation_is_added_by_files_alone(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data", ENV, str(FILES / "fleet.yaml"), (0, 0))
    stack.up()
    try:
        _create(stack)
        _refuse(stack)
        (pod,) = stack.call("GET", "/podyard/v1/projects/demo/pods")["pods"]
        assert (pod["shape"], pod["chipsHeld"], pod["largestFreeType"]) == ("8x8", 48, "v9x-16")
        stack.delete_node("n1", ZONE)
        stack.delete_node("n2", ZONE)
        _check_bill(stack)
        checked = stack.podyard("fsck")
        assert checked.returncode == 0, checked.stdout
    finally:
        stack.down()
        stack.http.close()


def test_an_estimate_and_a_price_of_an_added_generation() -> None:
    slice_ = ("--accelerator-type", "v9x-16", "--global-batch", "256", "--zone", ZONE)
    estimate = json.loads(_podyard("estimate", "resnet-50", *slice_, "-o", "json"))
    assert (estimate["devices"], estimate["usableHbmBytes"], estimate["fits"]) == (
        16,
        47 * 2**30,
        True,
    )
    # Twice the bandwidth and the peak of v6e, so faster than it, but not by more than that.
    known = json.loads(
        _podyard(
            "estimate",
            "resnet-50",
            "--accelerator-type",
            "v6e-16",
            "--global-batch",
            "256",
            "-o",
            "json",
        )
    )
    assert 0.5 < estimate["computeSeconds"] / known["computeSeconds"] < 1
    prices = json.loads(
        _podyard("price", "list", "--generation", "v9x", "--type", "v9x-16", "-o", "json")
    )
    assert "3.60" in json.dumps(prices) and "1.80" in json.dumps(prices)


def _create(stack: Stack) -> None:
    types = stack.call("GET", f"/v2/projects/demo/locations/{ZONE}/acceleratorTypes")[
        "acceleratorTypes"
    ]
    assert [item["type"] for item in types] == [
        "v9x-1",
        "v9x-4",
        "v9x-8",
        "v9x-16",
        "v9x-32",
        "v9x-64",
    ]
    node = stack.create_node("n1", "v9x-32", ZONE, runtimeVersion=RUNTIME)
    assert node["acceleratorConfig"] == {"type": "V9X", "topology": "4x8"}
    assert len(node["networkEndpoints"]) == 8  # hosts of four chips
    shape = ("--type", "v9x", "--topology", "4x4", "--version", RUNTIME)
    _podyard("tpu", "create", "n2", "--zone", ZONE, *shape, "--data", str(stack.data))
    assert stack.call("GET", f"{NODES}/n2")["acceleratorType"] == "v9x-16"


def _refuse(stack: Stack) -> None:
    old = stack.http.post(
        f"{NODES}?nodeId=n3", json={"acceleratorType": "v9x-4", "runtimeVersion": "v2-alpha"}
    )
    assert old.status_code == 400
    assert "does not run on v9x" in old.text
    # 48 chips of the quota of 64 are taken.
    large = stack.http.post(
        f"{NODES}?nodeId=n3", json={"acceleratorType": "v9x-32", "runtimeVersion": RUNTIME}
    )
    assert large.status_code == 429
    assert "TPUV9XsPodPerProjectPerRegionForTPUAPI" in large.text


def _check_bill(stack: Stack) -> None:
    lines = stack.call("GET", "/podyard/v1/projects/demo/usage")["nodes"]
    chips = {"v9x-32": 32, "v9x-16": 16}
    assert sorted(line["acceleratorType"] for line in lines) == sorted(chips)
    for line in lines:
        assert line["seconds"] > 0
        assert (
            Fraction(line["amount"])
            == line["seconds"] * chips[line["acceleratorType"]] * USD_PER_CHIP_SECOND
        )


def _podyard(*arguments: str) -> str:
    env = os.environ | ENV
    done = subprocess.run(
        [*PODYARD, *arguments], env=env, capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
