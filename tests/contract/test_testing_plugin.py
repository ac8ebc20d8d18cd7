"""The pytest plugin, as a person's tests meet it: the fixture itself, and pytest runs on small
files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials

from podyard.base.errors import Code, PodyardError
from podyard.testing import local
from podyard.testing.options import read_options
from podyard.testing.stack import Podyard, _rule

ROOT = Path(__file__).parents[2]
BODY = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
SPOT = {**BODY, "schedulingConfig": {"spot": True}}
START = datetime(2026, 3, 1, tzinfo=UTC)


def nodes(podyard: Podyard) -> str:
    return f"/v2/projects/{podyard.project}/locations/{podyard.location}/nodes"


def create(podyard: Podyard, name: str, body: Mapping[str, Any] = BODY) -> dict[str, Any]:
    operation = podyard.call("POST", f"{nodes(podyard)}?nodeId={name}", dict(body))
    return podyard.call("GET", f"/v2/{operation['name']}")


# start in a second less each
_LIGHT = ("-p", "no:schemathesis", "-p", "no:xdist", "-p", "no:hypothesispytest")


def pytest_on(
    folder: Path, name: str, text: str, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *_LIGHT,
        "-W",
        "error",
        *options,
        name,
    ]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}
    )


@pytest.mark.parametrize("name", ["first", "second"])
def test_each_test_has_a_podyard_of_its_own(podyard: Podyard, name: str) -> None:
    assert podyard.now == START
    assert podyard.call("GET", nodes(podyard)).get("nodes", []) == []
    assert create(podyard, name)["response"]["state"] == "READY"


def test_google_cloud_tpu_sees_what_a_plain_client_made(podyard: Podyard) -> None:
    client = tpu_v2.TpuClient(
        credentials=Credentials(podyard.token),
        transport="rest",
        client_options={"api_endpoint": podyard.url},
    )
    parent = f"projects/{podyard.project}/locations/{podyard.location}"
    node = tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-vm-base")
    assert (
        client.create_node(parent=parent, node_id="a", node=node).result().state
        == tpu_v2.Node.State.READY
    )
    http = podyard.client()
    assert http.post(nodes(podyard), params={"nodeId": "b"}, json=BODY).status_code == 200
    assert [item.name.rsplit("/", 1)[1] for item in client.list_nodes(parent=parent)] == ["a", "b"]


def test_time_stands_still_until_it_is_advanced(podyard: Podyard) -> None:
    create(podyard, "a", {**BODY, "schedulingConfig": {"preemptible": True}})
    assert podyard.advance("23h59m59s") == START + timedelta(hours=24, seconds=-1)
    assert podyard.call("GET", f"{nodes(podyard)}/a")["state"] == "READY"
    podyard.advance(timedelta(seconds=1))
    assert podyard.call("GET", f"{nodes(podyard)}/a")["state"] in ("PREEMPTED", "TERMINATED")
    assert podyard.advance(30 * 86_400.0) == START + timedelta(days=31)


@pytest.mark.podyard(
    fleet={"zones": {"us-east1-d": {"v3": {}}}, "timings": {"create_seconds": 60}}, env=True
)
def test_the_marker_gives_a_fleet_and_an_environment(podyard: Podyard) -> None:
    assert podyard.location == "us-east1-d"
    assert {name: os.environ[name] for name in podyard.env} == podyard.env
    assert {
        "PODYARD_URL",
        "CLOUDSDK_CORE_PROJECT",
        "GOOGLE_TPU_V2_CUSTOM_ENDPOINT",
    } <= podyard.env.keys()
    headers = {"Authorization": f"Bearer {os.environ['PODYARD_TOKEN']}"}
    path = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"].rstrip("/") + nodes(podyard)
    made = httpx.post(
        path, params={"nodeId": "a"}, json={**BODY, "acceleratorType": "v3-8"}, headers=headers
    )
    operation = f"/v2/{made.json()['name']}"
    podyard.advance(59)
    assert not podyard.call("GET", operation).get("done", False)
    podyard.advance(1)
    assert podyard.call("GET", operation)["response"]["state"] == "READY"


@pytest.mark.podyard(rate=100_000)
def test_a_clock_with_a_rate_runs_by_itself(podyard: Podyard) -> None:
    before = podyard.now
    podyard.settle()
    assert podyard.now > before


def test_the_environment_is_left_alone_otherwise(podyard: Podyard) -> None:
    assert os.environ.get("PODYARD_URL") != podyard.url


def test_a_preempted_node_says_so_and_costs_what_it_ran(podyard: Podyard) -> None:
    create(podyard, "a", SPOT)
    podyard.advance("1h")
    podyard.preempt("a")
    assert podyard.call("GET", f"{nodes(podyard)}/a")["state"] == "PREEMPTED"
    usage = podyard.call("GET", f"/podyard/v1/projects/{podyard.project}/usage")
    assert sum(item["seconds"] for item in usage["nodes"]) == 3600


def test_what_the_platform_refuses_is_raised(podyard: Podyard) -> None:
    with pytest.raises(PodyardError) as caught:
        podyard.preempt("nobody")
    assert caught.value.code is Code.NOT_FOUND
    for wrong, text in (
        ("yesterday", "not a duration"),
        (-1, "-1 is negative"),
        (float("nan"), "nan"),
    ):
        with pytest.raises(PodyardError, match=text):
            podyard.advance(wrong)


def test_options_that_are_wrong_are_named() -> None:
    for given, text in (
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"clock": "sundial"}, "clock is 'sundial'"),
        ({"rate": -1}, "rate is -1"),
        (
            {"rate": 2, "clock": "system"},
            "rate can only be set with a virtual clock, not with a system clock",
        ),
        ({"start": "noon"}, "start: 'noon'"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"location": "mars-north1-a"}, "no zone mars-north1-a"),
        ({"env": "yes"}, "env is 'yes'"),
        ({"scenario": "nowhere.yaml"}, "there is no file nowhere.yaml"),
    ):
        with pytest.raises(PodyardError, match=text):
            read_options(given)


def test_words_of_a_fault_become_those_of_a_rule() -> None:
    assert _rule("preempt",
        {"accelerator_type": "v3-*", "usage": "spot", "from_": "1h", "count": 2}) == {
        "effect": "preempt", "match": {"acceleratorType": "v3-*", "usage": "spot"}, "from": "1h",
        "count": 2,
    }  # fmt: skip
    assert _rule("dirty", {"as_": "UNKNOWN"}) == {"effect": "dirty", "as": "UNKNOWN"}


def test_local_is_the_same_without_pytest() -> None:
    with local(rate=0, seed=7) as podyard:
        create(podyard, "a")
        assert podyard.fsck() == []
        data = podyard.data
    assert not data.exists()


BROKEN = """
from sqlalchemy import delete
from podyard.db.tables.compute import slices

def make(podyard):
    path = f"/v2/projects/demo/locations/{podyard.location}/nodes?nodeId=n"
    podyard.call("POST", path, {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"})
    podyard.database.run(lambda uow: uow.execute(delete(slices)))

def test_breaks_an_invariant(podyard):
    make(podyard)

@__import__("pytest").mark.podyard(fsck=False)
def test_breaks_it_and_does_not_mind(podyard):
    make(podyard)

@__import__("pytest").mark.podyard(rate="fast")
def test_has_a_wrong_option(podyard):
    pass
"""


@pytest.mark.slow
def test_a_broken_invariant_fails_the_test_after_which_it_is_seen(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, "test_broken.py", BROKEN)
    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "podyard fsck found 1 violations" in done.stdout
    assert "I1 2026-03-01T00:00:00Z projects/demo/locations/us-central1-f/nodes/n" in done.stdout
    assert "podyard: rate is 'fast'" in done.stdout


SHARED = """
def test_first(podyard):
    podyard.advance("1h")

def test_second(podyard):
    assert podyard.now.hour == 1
    assert podyard.location == "us-east1-d"
"""


@pytest.mark.slow
def test_the_ini_file_sets_scope_and_fleet(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npodyard_scope = module\npodyard_fleet = fleet.yaml\n"
    )
    (tmp_path / "fleet.yaml").write_text("zones: {us-east1-d: {v3: {}}}\n")
    done = pytest_on(tmp_path, "test_shared.py", SHARED)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


WITHOUT = """
import sys

def test_nothing_heavy_is_imported():
    heavy = {"sqlalchemy", "fastapi", "uvicorn", "httpx", "numpy", "podyard.db", "podyard.testing.stack"}
    assert "podyard.testing.plugin" in sys.modules
    assert not heavy & set(sys.modules)
"""  # noqa: E501


@pytest.mark.slow
def test_tests_without_the_fixture_pay_nothing(tmp_path: Path) -> None:
    done = pytest_on(tmp_path, "test_without.py", WITHOUT)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def scenario_file(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_scenario_takes_nodes_back_at_its_time(podyard: Podyard, tmp_path: Path) -> None:
    create(podyard, "a", SPOT)
    create(podyard, "b")
    podyard.advance("1d")
    podyard.scenario(scenario_file(tmp_path, "faults:\n  - {effect: preempt, from: 2h}\n"))
    podyard.advance("1h59m59s")
    assert podyard.call("GET", f"{nodes(podyard)}/a")["state"] == "READY"
    podyard.advance("1s")
    assert podyard.call("GET", f"{nodes(podyard)}/a")["state"] == "PREEMPTED"
    assert podyard.call("GET", f"{nodes(podyard)}/b")["state"] == "READY"


def test_a_fault_is_matched_by_its_words(podyard: Podyard) -> None:
    podyard.fault("stockout", accelerator_type="v2-*", until="1h")
    assert "error" in create(podyard, "a")
    assert create(podyard, "b", {**BODY, "acceleratorType": "v3-8"})["response"]["state"] == "READY"
    podyard.advance("1h")
    assert create(podyard, "c")["response"]["state"] == "READY"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            "faults:\n  - effect: preempt\n  - effect: preemption\n",
            "line 3: faults[1].effect: unknown effect 'pre",
        ),
        (
            "faults:\n  - effect: late\n    match: {zone: a}\n",
            "line 2: faults[0].seconds: it is missing",
        ),
        (
            "description: x\nfaults:\n\n  - effect: stockout\n    count: 0\n",
            "line 5: faults[0].count: 0 is not",
        ),
        (
            "faults:\n  - effect: stockout\n    match:\n      colour: red\n",
            "line 4: faults[0].match.colour",
        ),
        ("faults: 3\n", "line 1: faults must be a list"),
        ("fault: []\n", "line 1: fault: unknown: a scenario has"),
        ("- preempt\n", "line 1: a scenario is a mapping"),
        ("faults:\n  - {effect: preempt\n", "line 3: not YAML"),
        ("", "line 1: a scenario is a mapping"),
    ],
)
def test_a_wrong_scenario_names_line_and_field_and_starts_nothing(
    podyard: Podyard, tmp_path: Path, text: str, where: str
) -> None:
    path = scenario_file(tmp_path, text)
    with pytest.raises(PodyardError) as caught:
        podyard.scenario(path)
    assert caught.value.message.startswith(f"{path}: {where}"), caught.value.message
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert podyard.call("GET", "/podyard/v1/faults")["faults"] == []


def test_a_podyard_begins_with_its_scenario_or_not_at_all(tmp_path: Path) -> None:
    path = scenario_file(tmp_path, "faults:\n  - {effect: stockout, until: 1h}\n")
    with local(scenario=path) as podyard:
        assert "error" in create(podyard, "a")
    wrong = scenario_file(tmp_path, "faults:\n  - {effect: rain}\n")
    with (
        pytest.raises(PodyardError, match=r"line 2: faults\[0\].effect: unknown effect 'rain'"),
        local(scenario=wrong),
    ):
        pytest.fail("it has started")


@pytest.mark.slow
def test_the_example_of_a_launcher_passes() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "examples/launcher_test.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
