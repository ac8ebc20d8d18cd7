"""The list of instances and the page of one: what is shown, what can be done, and by whom."""

from __future__ import annotations

import dataclasses
from html import unescape

import pytest

from podyard.db.compute import hosts, instances
from podyard.db.store.transition import store
from podyard.db.store.unit_of_work import UnitOfWork
from tests.unit.web.instances.conftest import CPU, HERE, TPU, ZONE, ConsoleUser, rows, verbs, words

VM = f"instances/{ZONE}/vm"


def test_a_list_is_filtered_sorted_and_priced(console: ConsoleUser) -> None:
    console.create("cpu", CPU, labels="team=a")
    console.create("tpu", TPU)
    console.create("spot", "ct6e-standard-1t", model="SPOT")
    console.yard.step(3600)
    assert rows(console.page("instances")) == ["cpu", "spot", "tpu"]
    assert rows(console.page("instances?sort=-price")) == ["tpu", "spot", "cpu"]
    assert rows(console.page("instances?sort=-cost"))[:2] == ["tpu", "spot"]
    assert rows(console.page("instances?label=team=a")) == ["cpu"]
    assert rows(console.page(f"instances?type={TPU}&state=RUNNING")) == ["tpu"]
    assert rows(console.page("instances?q=no-such")) == []
    text = words(console.page("instances?q=tpu"))
    assert f"tpu RUNNING {ZONE} {TPU} 4 on demand 10.128." in text
    assert "$10.80 $10.80 *" in text
    refused = console.get("instances?sort=metadata")
    assert refused.status_code == 400 and "unknown order" in unescape(refused.text)


def test_a_page_shows_what_an_instance_has(console: ConsoleUser) -> None:
    console.create(
        "vm", TPU, data_gb="20", labels="team=a", startup_script="echo <hi>", description="Ada's"
    )
    console.yard.step(60)
    html = console.page(VM)
    text = words(html)
    assert "4 chips v6e, topology 2x2" in text and "Ada's" in text and "team=a" in text
    assert "vm-1 data pd-balanced 20 GB read and write deleted" in text
    assert f"vm.{ZONE}.c.demo.internal" in text and "gcloud compute ssh vm" in text
    assert "echo <hi>" not in html.partition("<main")[0] and "echo <hi>" in text
    assert "insert SUCCEEDED" in text and "PROVISIONING RUNNING ready" in text
    # four chips for a minute, and the second that it was created in
    shown = console.yard.ok("GET", "/podyard/v1/projects/demo/usage")
    seconds = shown["nodes"][0]["seconds"]
    assert f"{seconds} 4 $2.70 per chip-hour" in text
    assert f"{ZONE}-v6e-0" in text
    assert console.get(f"instances/{ZONE}/nobody").status_code == 404


def test_what_a_script_has_written_is_text_on_the_serial_port(console: ConsoleUser) -> None:
    console.create("vm")
    console.yard.database.run(_write)
    assert "startup-script: <b>ready</b>" in words(console.page(VM))
    assert "<b>ready</b>" not in console.get(VM).text
    assert (
        "Serial port output"
        not in words(console.as_role("tpu.viewer").page(VM)).partition("The same by command")[0]
    )


def _write(uow: UnitOfWork) -> None:
    (instance,) = instances.of_project(uow, "demo")
    (host,) = hosts.of_node(uow, instance.node.node_key)
    scripts = {"startup-script": {"output": "<b>ready</b>\n"}}
    store(uow, host, dataclasses.replace(host, scripts=scripts))


def test_an_instance_is_stopped_started_reset_and_deleted(console: ConsoleUser) -> None:
    console.create("vm")
    assert verbs(console.page(VM)) == ["stop", "reset", "maintenance", "delete"]
    assert 'id="confirm-delete"' in console.page(VM)
    assert " open>" in console.page(f"{VM}?confirm=confirm-stop")
    assert console.post(f"{VM}/stop").headers["location"].endswith(VM)
    console.yard.step()
    assert verbs(console.page(VM)) == ["start", "delete"]
    refused = console.post(f"{VM}/reset")
    assert refused.status_code == 400 and "is not ready" in words(refused.text)
    assert console.post(f"{VM}/start").status_code == 303
    console.yard.step()
    assert console.post(f"{VM}/reset").status_code == 303
    console.yard.step(10)
    assert console.post(f"{VM}/explode").status_code == 404
    gone = console.post(f"{VM}/delete")
    assert gone.headers["location"].endswith("/instances")
    console.yard.step()
    assert console.get(VM).status_code == 404
    assert rows(console.page("instances")) == []


def test_a_spot_instance_is_preempted_by_a_maintenance_event_and_says_so(
    console: ConsoleUser,
) -> None:
    console.create("vm", TPU, model="SPOT")
    assert console.post(f"{VM}/maintenance").status_code == 303
    console.yard.step()
    text = words(console.page(VM))
    assert "vm TERMINATED Start Delete preempted by a simulated maintenance event" in text
    assert "preempt SUCCEEDED" in text
    assert "preempted by a simulated" in words(console.page("instances"))


def test_selected_instances_are_stopped_and_those_refused_stop_no_others(
    console: ConsoleUser,
) -> None:
    console.create("one")
    console.create("two")
    console.post(f"instances/{ZONE}/two/stop")
    console.yard.step()
    pick = [f"{ZONE}/one", f"{ZONE}/two", f"{ZONE}/gone"]
    asked = console.post("instances/actions", verb="stop", pick=pick)
    assert asked.status_code == 200 and "Stop 3 instances?" in words(asked.text)
    done = console.post("instances/actions", verb="stop", pick=pick, confirmed="yes")
    assert done.status_code == 409 and "2 of 3 instances stopping" in words(done.text)
    assert "instances/gone' was not found" in words(done.text)
    console.yard.step()
    assert rows(console.page("instances?state=TERMINATED")) == ["one", "two"]
    refused = console.post("instances/actions", verb="reset", pick=pick)
    assert refused.status_code == 400


@pytest.mark.parametrize("role", ["tpu.viewer", "jobs.runner"])
def test_who_may_only_look_has_no_buttons(console: ConsoleUser, role: str) -> None:
    console.create("vm", TPU)
    viewer = console.as_role(role)
    assert verbs(viewer.page(VM)) == []
    page = viewer.page("instances")
    assert rows(page) == ["vm"] and "selected</button>" not in page
    assert "Create" not in words(page).partition("vm")[0]
    assert "$" not in words(viewer.page(VM)).partition("Cost so far")[2].partition("Details")[0]
    assert viewer.get("instances/new").status_code == 403
    for verb in ("stop", "delete", "maintenance"):
        assert viewer.post(f"{VM}/{verb}").status_code == 403, verb
    assert console.yard.ok("GET", f"{HERE}/instances/vm")["status"] == "RUNNING"


def test_a_stranger_learns_nothing(console: ConsoleUser) -> None:
    console.create("vm", TPU)
    console.make_slice("g")
    console.yard.ok("POST", "/podyard/v1/projects", {"projectId": "second"})
    stranger = console.as_role("owner", "second")
    group = f"instance-groups/{ZONE}/g"
    panel = f"connect?instance={ZONE}/vm"
    for path in ("instances", VM, "instances/new", "instance-groups", group, panel):
        answer = stranger.get(path)
        assert answer.status_code == 403 and "10.128." not in answer.text, path
    assert stranger.post(f"{VM}/stop").status_code == 403
    assert stranger.post(f"{group}/resize", size="0").status_code == 403
    assert rows(stranger.get("instances", "second").text) == []
    # the pods are everybody's: the chips are shown, the names are not
    assert "vm" not in words(stranger.get(f"pods/{ZONE}-v6e-0", "second").text).split()


def test_other_pages_lead_to_instances(console: ConsoleUser) -> None:
    """And not to a page of a node of that name."""
    console.create("vm", TPU)
    console.yard.step(2 * 3600)
    url = f"/console/demo/{VM}"
    for path in (f"pods/{ZONE}-v6e-0", "search?q=vm", "billing", "billing/idle", "overview"):
        html = console.page(path)
        assert f'href="{url}' in html and f"/nodes/{ZONE}/vm" not in html, path
    assert "gcloud compute instances stop vm" in console.page("billing/idle")
    assert "Instance vm" in console.page(f"pods/{ZONE}-v6e-0")
    panel = words(console.page(f"connect?instance={ZONE}/vm"))
    assert "Connect to vm" in panel and "ssh -i ~/.ssh/google_compute_engine 127." in panel
    assert f"connect?instance={ZONE}/vm" in console.page(VM)
