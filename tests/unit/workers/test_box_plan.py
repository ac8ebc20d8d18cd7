"""The parts of a box: mounts, names, addresses and limits."""

from __future__ import annotations

import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podyard.base import boxes
from podyard.base.clock import OsClock
from podyard.domain.host import NodeFacts
from podyard.hardware.accelerator_types import parse
from podyard.workers.box import box
from podyard.workers.box import plan as box_plan
from podyard.workers.box.plan import Shown

SHOWN = Shown("/srv/yard/venv", ("/opt/python", "/srv/yard/podyard"), ("/srv/yard/venv/data",))
FOLDER = Path("/data/agents/a/hosts/h")


def facts_of_four() -> NodeFacts:
    return NodeFacts(
        node_key="n", project="p", project_number=7, zone="us-central1-a", node_id="pod", number=1,
        state="READY",
        accelerator_type="v3-32", topology="4x4", runtime_version="x", usage_class="ON_DEMAND",
        description="", tags=(),
        metadata={}, service_account="", scopes=(), network="default", external_ips=(),
        internal_ips=tuple(f"10.128.0.{number}" for number in range(2, 6)),
        host_addresses=tuple(f"127.130.0.{number}" for number in range(2, 6)),
    )  # fmt: skip


def _mounts(
    shown: Shown = SHOWN, *, is_root: bool = True, **folders: str | None
) -> dict[str, box_plan.Mount]:
    there = {"/usr": None, "/bin": "usr/bin", **folders}
    found = box_plan.mounts(FOLDER, Path("/base/etc"), shown, there, is_root=is_root)
    return {item.target: item for item in found}


def test_a_box_sees_the_system_its_own_folders_and_what_it_is_shown() -> None:
    found = _mounts()
    assert list(found) == [
        "/usr", "/etc", "/home/podyard", "/podyard/programs", "/tmp", "/opt/python",
        "/srv/yard/podyard",
        "/srv/yard/venv", "/srv/yard/venv/data",
    ]  # fmt: skip
    assert {target for target, item in found.items() if item.kind == "overlay"} == {
        "/usr",
        "/etc",
        "/srv/yard/venv",
    }
    assert found["/opt/python"].read_only and found["/srv/yard/podyard"].read_only
    assert found["/home/podyard"].source == "/data/agents/a/hosts/h/home"


def test_a_secret_below_what_is_shown_is_covered_after_it() -> None:
    found = _mounts()
    assert found["/srv/yard/venv/data"].kind == "empty"
    assert "/elsewhere" not in _mounts(dataclasses.replace(SHOWN, hidden=("/elsewhere",)))


def test_a_python_of_the_system_needs_no_mount_of_its_own() -> None:
    found = _mounts(Shown("/usr", ("/usr", "/usr/lib/python3/dist-packages/podyard"), ()))
    assert list(found) == ["/usr", "/etc", "/home/podyard", "/podyard/programs", "/tmp"]


def test_a_box_sees_the_data_sets_at_a_place_of_their_own_and_is_told_it() -> None:
    shown = dataclasses.replace(SHOWN, datasets="/srv/yard/venv/data/datasets/mirror")
    seen = list(_mounts(shown).values())
    assert seen[-1].source == "/srv/yard/venv/data/datasets/mirror"  # after what is covered
    assert seen[-1].target == "/podyard/datasets" and seen[-1].read_only
    for own, folder in ((SHOWN, None), (shown, "/podyard/datasets")):
        told = box_plan.environment({"PATH": "/bin"}, own, facts_of_four(), has_proxy=False)
        assert told.get("PODYARD_DATASET_MIRROR") == folder


def test_every_box_has_its_own_range_of_users() -> None:
    first, second = box_plan.id_maps(1), box_plan.id_maps(2)
    assert int(second["root"].split()[1]) - int(first["root"].split()[1]) == box_plan.IDS
    assert sum(int(line.split()[2]) for line in first["user"].splitlines()) == box_plan.IDS
    assert first["user"].splitlines()[0].split()[1] == str(
        int(first["root"].split()[1]) + box_plan.USER_ID
    )
    highest = box_plan.id_maps(2**23)
    assert int(highest["root"].split()[1]) + box_plan.IDS < 2**32 - 2


def test_without_root_a_box_has_one_user_who_may_add_packages_and_programs() -> None:
    found = {
        is_root: box_plan.plan(
            facts_of_four(),
            1,
            FOLDER,
            Path("/base/etc"),
            SHOWN,
            {"/usr": None},
            (),
            "http://h:1",
            is_root=is_root,
        )
        for is_root in (True, False)
    }
    assert found[False].maps == {"own": "1000 0 1\n"} and set(found[True].maps) == {"root", "user"}
    changed = {item.target: item.changed for item in found[False].mounts if item.changed}
    assert set(changed) == {"/usr", "/srv/yard/venv"}
    assert {"bin", "local/*", "lib/python3*/site-packages"} < set(changed["/usr"])
    assert not any(item.changed for item in found[True].mounts)
    sudo = {is_root: plan.files["/run/podyard/sudo"][1] for is_root, plan in found.items()}
    assert "setpriv --reuid" in sudo[True] and "unshare --map-user" in sudo[False]


def test_hosts_of_a_slice_share_a_network_and_no_other_slice_does() -> None:
    facts = facts_of_four()
    other = dataclasses.replace(facts, host_addresses=("127.128.9.1",))
    agent, another = Path("/data/agents/local"), Path("/data/agents/second")
    assert box_plan.switch_name(facts, agent) == box_plan.switch_name(facts, agent)
    assert box_plan.switch_name(facts, agent) != box_plan.switch_name(other, agent)
    assert box_plan.switch_name(facts, agent) != box_plan.switch_name(facts, another)
    assert len(box_plan.port_name("node-0123456789abcdef-w-511")) <= 15
    assert "10.128." in box_plan.inside_commands(facts, 1, "http://127.0.0.1:8700")


def test_a_box_knows_its_slice_the_metadata_server_and_the_api_by_name() -> None:
    facts = facts_of_four()
    text = box_plan.host_file(facts, "https://yard.example:8700")
    assert "169.254.169.254 metadata.google.internal\n" in text
    assert f"{facts.internal_ips[3]} {facts.node_id}-w-3\n" in text
    assert "127.0.0.1 yard.example\n" in text
    assert box_plan.api_inside("https://yard.example") == ("127.0.0.1", 443)
    assert box_plan.api_inside("http://192.0.2.7:8700") == ("192.0.2.7", 8700)
    assert "addr add 192.0.2.7/32 dev lo" in box_plan.inside_commands(
        facts, 0, "http://192.0.2.7:8700"
    )


def test_hosts_in_boxes_are_reached_at_their_internal_addresses() -> None:
    assert box_plan.facts_inside(facts_of_four()).host_addresses == ()


def test_a_box_knows_no_person_of_the_machine_and_no_password() -> None:
    passwd = (
        "root:x:0:0::/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/"
        "bash\nnobody:x:65534:65534::/:/bin/false\n"
    )
    files = box_plan.etc_files(passwd, "root:x:0:\nann:x:1000:\n")
    assert "ann" not in files["passwd"][1] + files["group"][1]
    assert [line.split(":")[1] for line in files["shadow"][1].splitlines()] == ["*"] * 3
    assert "podyard:x:1000:1000:podyard:/home/podyard:/bin/bash\n" in files["passwd"][1]


def test_path_leads_only_to_what_a_box_sees() -> None:
    found = box_plan.path_variable("/elsewhere/bin:/opt/python/bin:relative:/usr/bin", SHOWN)
    assert found.startswith("/srv/yard/venv/bin:/opt/python/bin:/usr/bin:")
    assert "elsewhere" not in found and "relative" not in found


def test_limits_of_both_versions_of_cgroups() -> None:
    for version, memory in ((1, "memory.limit_in_bytes"), (2, "memory.max")):
        together, each = box_plan.limits(16 << 30, 2, 32768, version=version)
        assert each["memory"][memory] == 8 << 30 < together["memory"][memory] == 12 << 30
        assert (each["pids"], together["pids"]) == ({"pids.max": 640}, {"pids.max": 16384})


def test_version_2_of_cgroups_has_one_group_for_all_boxes_and_one_for_each(tmp_path: Path) -> None:
    """What is written where. The controllers have to be on in the groups above before they limit
    one below."""
    made = box.Boxes(box.BoxSettings(tmp_path / "agent", "http://h:1"), OsClock())
    made._cgroups = {"all": tmp_path}
    made._limit("host")
    files = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    yard = next(path.name for path in tmp_path.glob("podyard-*"))
    assert files.keys() == {
        "cgroup.subtree_control", f"{yard}/cgroup.subtree_control", f"{yard}/cpu.weight",
        f"{yard}/memory.max",
        f"{yard}/pids.max", f"{yard}/host/memory.max", f"{yard}/host/pids.max",
    }  # fmt: skip
    assert (
        files["cgroup.subtree_control"]
        == files[f"{yard}/cgroup.subtree_control"]
        == "+cpu +memory +pids"
    )
    assert int(files[f"{yard}/host/memory.max"]) < int(files[f"{yard}/memory.max"])


def test_boxes_that_are_made_at_once_share_one_base(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    made = box.Boxes(box.BoxSettings(tmp_path / "agent", "http://h:1"), OsClock())
    start = threading.Barrier(8)

    def ask(_: int) -> Path:
        start.wait()
        return made._base()

    with ThreadPoolExecutor(8) as pool:
        (base,) = set(pool.map(ask, range(8)))
    assert list(base.parent.iterdir()) == [base]
    assert (base / "passwd").is_file()


@pytest.mark.parametrize(("user", "said"), [(0, boxes.BOXED), (1001, boxes.BOXED_WITHOUT_ROOT)])
def test_a_box_without_root_says_what_it_does_not_keep_apart(
    monkeypatch: pytest.MonkeyPatch, user: int, said: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert boxes.sentence("") == said
    assert ("memory and CPU are shared" in said) == (user != 0)


def test_where_hosts_share_the_machine_a_sentence_names_all_that_they_share() -> None:
    assert boxes.why_not("off") == "PODYARD_BOXES is off"
    said = boxes.sentence("ip is missing")
    assert said == (
        "Hosts are not isolated (ip is missing): they share files, processes, ports, the network, "
        "memory and CPU with this machine and each other."
    )


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("v2-8", ("accel0", "accel1", "accel2", "accel3")),
        ("v4-32", ("accel0", "accel1", "accel2", "accel3")),
        ("v5litepod-1", ("vfio/vfio", "vfio/0")),
        ("v5p-8", ("vfio/vfio", "vfio/0", "vfio/1", "vfio/2", "vfio/3")),
        ("v6e-8", ("vfio/vfio", *(f"vfio/{number}" for number in range(8)))),
    ],
)
def test_a_host_has_a_device_file_for_each_chip(name: str, files: tuple[str, ...]) -> None:
    """As Ray counts them: /dev/accel*, else the numbers in /dev/vfio."""
    assert box_plan.device_files(parse(name)) == files
