"""Managed groups: the list, one with its instances, and what can be done to it."""

from __future__ import annotations

from tests.unit.web.instances.conftest import HERE, ZONE, ConsoleUser, rows, verbs, words

GROUP = f"instance-groups/{ZONE}/g"


def test_a_group_is_one_slice_with_its_state(console: ConsoleUser) -> None:
    console.make_slice("g")
    console.yard.step(60)
    text = words(console.page("instance-groups"))
    assert f"g ACTIVE {ZONE} g-t 2x4 2 2" in text
    html = console.page(GROUP)
    text = words(html)
    assert "one slice of 2 hosts, ACTIVE" in text and "Workload policy g-p" in text
    members = rows(html)
    assert len(members) == 2 and verbs(html) == ["resize", "delete"]
    assert rows(console.page("instances?q=g-")) == members
    page = words(console.page(f"instances/{ZONE}/{members[0]}"))
    assert "Instances of the slice" in page and members[1] in page and "8 chips of pod" in page
    assert f'href="/console/demo/{GROUP}"' in console.page(f"instances/{ZONE}/{members[0]}")
    # each has half of what the slice costs
    assert words(console.page("instances")).count("$10.80") == 2


def test_a_group_is_resized_to_nothing_and_back_and_deleted(console: ConsoleUser) -> None:
    console.make_slice("g")
    refused = console.post(f"{GROUP}/resize", size="1")
    assert refused.status_code == 400 and "use 0 or 2" in words(refused.text)
    assert "must be a whole number" in words(console.post(f"{GROUP}/resize", size="x").text)
    assert console.post(f"{GROUP}/resize", size="0").status_code == 303
    console.yard.step()
    html = console.page(GROUP)
    assert rows(html) == [] and "Resize to 2" in words(html) and "None: the target" in words(html)
    assert console.post(f"{GROUP}/resize", size="2").status_code == 303
    console.yard.step()
    assert len(rows(console.page(GROUP))) == 2
    gone = console.post(f"{GROUP}/delete")
    assert gone.headers["location"] == "/console/demo/instance-groups"
    console.yard.step()
    assert console.get(GROUP).status_code == 404
    assert "No groups yet" in words(console.page("instance-groups"))
    assert "items" not in console.yard.ok("GET", f"{HERE}/instances")


def test_an_instance_of_a_slice_that_is_deleted_comes_back(console: ConsoleUser) -> None:
    console.make_slice("g")
    member = rows(console.page(GROUP))[0]
    page = words(console.page(f"instances/{ZONE}/{member}"))
    assert "Its group makes it again." in page and "All 2 instances of its slice" in page
    assert console.post(f"instances/{ZONE}/{member}/delete").status_code == 303
    assert "was deleted, and its group makes it again" in words(
        console.page(f"instances/{ZONE}/{member}")
    )


def test_who_may_only_look_at_groups_has_no_buttons(console: ConsoleUser) -> None:
    console.make_slice("g")
    viewer = console.as_role("tpu.viewer")
    assert verbs(viewer.page(GROUP)) == []
    assert viewer.post(f"{GROUP}/resize", size="0").status_code == 403
    assert viewer.post(f"{GROUP}/delete").status_code == 403
    assert len(rows(viewer.page(GROUP))) == 2
    assert console.get(f"instance-groups/{ZONE}/nobody").status_code == 404
