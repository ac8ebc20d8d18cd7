"""The form that creates an instance: what may be chosen, what it costs, and what is refused."""

from __future__ import annotations

import re
import shlex
from html import unescape
from typing import Any

import pytest

from podyard.domain.compute.place import path_of
from podyard.domain.instances.instance import (
    AttachedDisk,
    InstanceSpec,
    Interface,
    ProvisioningModel,
    Scheduling,
    TerminationAction,
)
from podyard.domain.instances.messages import read_instance, write_instance
from podyard.web.instances.commands import create_instance
from tests.unit.web.instances.conftest import CPU, HERE, TPU, ZONE, ConsoleUser, words


def _options(html: str, name: str) -> list[str]:
    """The values of a select."""
    (select,) = re.findall(rf'<select id="{name}".*?</select>', html, re.DOTALL)
    return re.findall(r'<option value="([^"]+)"', select)


def _chosen(html: str, name: str) -> str:
    (select,) = re.findall(rf'<select id="{name}".*?</select>', html, re.DOTALL)
    (value,) = re.findall(r'<option value="([^"]+)" selected', select)
    return unescape(value)


def test_a_machine_type_is_offered_where_the_fleet_has_it(console: ConsoleUser) -> None:
    """One without chips is offered everywhere, and is neither reserved nor flex-start."""
    html = console.page(f"instances/new?machine_type={TPU}&zone=us-central1-f")
    with_chips = _options(html, "zone")
    assert ZONE in with_chips and "us-central1-f" not in with_chips
    assert _chosen(html, "zone") in with_chips
    assert _options(html, "model") == ["STANDARD", "SPOT", "FLEX_START"]
    assert any("accelerator-images" in path for path in _options(html, "image"))
    html = console.page(f"instances/new?machine_type={CPU}&zone=us-central1-f&model=FLEX_START")
    assert set(_options(html, "zone")) > set(with_chips)
    assert _chosen(html, "zone") == "us-central1-f"
    assert _options(html, "model") == ["STANDARD", "SPOT"]
    assert not any("accelerator" in path for path in _options(html, "image"))
    machines = _options(html, "machine_type")
    assert {"tpu7x-standard-4t", "e2-medium"} <= set(machines)
    assert "ct4p-hightpu-4t" not in machines


def test_price_room_and_commands_stand_before_the_click(console: ConsoleUser) -> None:
    asked = f"instances/new?machine_type={TPU}&zone={ZONE}&name=vm"
    text = words(console.page(asked))
    assert "$10.80 per hour" in text and f"Room {ZONE}: 8 or more fit now." in text
    assert f"gcloud compute instances create vm \\ --project=demo \\ --zone={ZONE}" in text
    text = words(console.page(f"{asked}&model=FLEX_START&run_time=30m"))
    assert "At most $5.40 for its run time." in text and "--max-run-duration=1800s" in text
    text = words(console.page("instances/new?machine_type=n2-standard-128&name=a"))
    assert "128 of 128 processors of the quota are left" in text
    console.create("cpu")
    text = words(console.page("instances/new?machine_type=n2-standard-128&name=a&zone=" + ZONE))
    assert f"No room {ZONE}: 124 of 128 processors" in text and "It would be refused" in text


def test_an_instance_is_what_a_client_would_have_made(console: ConsoleUser) -> None:
    console.create(
        "vm",
        TPU,
        model="FLEX_START",
        run_time="2h",
        boot_gb="30",
        data_gb="20",
        labels="team=a",
        startup_script="echo one\r\necho two",
        internal_only="1",
    )
    shown = console.yard.ok("GET", f"{HERE}/instances/vm")
    scheduling = shown["scheduling"]
    assert scheduling["provisioningModel"] == "FLEX_START"
    assert scheduling["maxRunDuration"] == {"seconds": "7200"}
    assert shown["metadata"]["items"] == [{"key": "startup-script", "value": "echo one\necho two"}]
    assert shown["labels"] == {"team": "a"}
    assert "accessConfigs" not in shown["networkInterfaces"][0]
    assert [disk["autoDelete"] for disk in shown["disks"]] == [True, True]
    assert shown["disks"][0]["diskSizeGb"] == "30"
    text = words(console.page(f"instances/{ZONE}/vm"))
    assert "Run time 2 h, then deleted" in text and "no external IP address" in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "Not A Name"}, "Must be a match of regex"),
        ({"machine_type": "n9-giant"}, "Machine type with name 'n9-giant' does not exist"),
        ({"zone": "mars-1"}, "zones/mars-1' was not found"),
        ({"model": "FREE"}, "unknown provisioning model 'FREE'"),
        ({"model": "FLEX_START"}, "must have a maximum run duration"),
        ({"run_time": "soon"}, "run time: 'soon' is not a duration"),
        ({"run_time": "1s"}, "It must be from 30 to"),
        ({"labels": "team"}, "'team' must have the form key=value"),
        ({"data_gb": "many"}, "Size of the data disk is 'many'"),
        ({"boot_gb": "1"}, "sizeGb is 1: it must be from 10"),
        ({"image": "windows"}, "was not found"),
        ({"zone": "us-central1-f"}, f"'{TPU}' does not exist in zone 'us-central1-f'"),
    ],
)
def test_a_refused_instance_comes_back_with_its_values(
    console: ConsoleUser, fields: dict[str, str], said: str
) -> None:
    form = {"name": "kept", "machine_type": TPU, "zone": ZONE, "model": "STANDARD", **fields}
    answer = console.post("instances/new", startup_script="echo kept", **form)
    text = unescape(answer.text)
    assert answer.status_code in (400, 404) and said in text, words(answer.text)[:600]
    assert f'value="{form["name"]}"' in text and "echo kept</textarea>" in text
    assert "items" not in console.yard.ok("GET", f"{HERE}/instances")


SPECS = (
    InstanceSpec("e2-medium", interfaces=(Interface("global/networks/default"),)),
    InstanceSpec(
        TPU,
        description="a",
        labels={"team": "a"},
        metadata={"startup-script": "a, b\n"},
        tags=("web",),
        scheduling=Scheduling(
            ProvisioningModel.SPOT, False, TerminationAction.DELETE, 3600.0, 60.0, None, "TERMINATE"
        ),
        interfaces=(Interface("global/networks/default", "regions/r/subnetworks/s", True),),
        disks=(
            AttachedDisk("projects/demo/zones/z/disks/d", "READ_ONLY"),
            AttachedDisk("", auto_delete=True, new_gb=10, new_type="pd-ssd"),
        ),
        reservation_name="projects/demo/locations/z/reservations/r",
    ),
)


@pytest.mark.parametrize("spec", SPECS)
def test_a_message_that_is_written_asks_for_the_same(spec: InstanceSpec) -> None:
    message: dict[str, Any] = write_instance("vm", "z", spec)
    assert read_instance(message, "demo", "z") == spec
    assert path_of(message["machineType"]).endswith(spec.machine_type)


@pytest.mark.parametrize("script", ["echo a", "echo a, b: c; d", "#!/bin/bash\necho 'a'"])
def test_a_script_reaches_gcloud_as_one_entry_of_metadata(script: str) -> None:
    """gcloud parts entries at commas, or at the sign that stands between two carets in front."""
    spec = InstanceSpec(TPU, metadata={"startup-script": script})
    command = next(
        one for one in create_instance("demo", ZONE, "vm", spec) if one.label == "gcloud"
    )
    words_of = shlex.split(command.text.partition("\n")[2].replace("\\\n", ""))
    (flag,) = [word for word in words_of if word.startswith("--metadata=")]
    text, sign = flag.removeprefix("--metadata="), ","
    if text.startswith("^"):
        _, sign, text = text.split("^", 2)
    assert text.split(sign) == [f"startup-script={script}"]
