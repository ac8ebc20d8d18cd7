"""The picture of a pod: every chip once, in what holds it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from podyard.base.ids import letters_of
from podyard.hardware.torus import full_mask
from podyard.web.torus import CELL, STUB, Part, pod_picture


def _drawn(root: ElementTree.Element) -> dict[str, int]:
    """Chips by kind, counted by the lengths of their bars."""
    found: dict[str, int] = {}
    for path in root.iter("path"):
        kind = path.attrib["class"]
        if kind.startswith("chip-"):
            widths = re.findall(rf"M\d+ \d+h(\d+)v{CELL}h", path.attrib["d"])
            found[kind] = found.get(kind, 0) + sum(int(width) // CELL for width in widths)
    return found


@pytest.mark.parametrize("shape", [(4, 4), (16, 16), (4, 4, 4), (16, 16, 16), (16, 20, 28)])
def test_every_chip_is_drawn_once_in_what_holds_it(shape: tuple[int, ...]) -> None:
    own, held, broken = 0b11, 0b1100, 1 << 15
    parts = [Part("held", "", held), Part("s1", "demo", own, "A"), Part("broken", "", broken)]
    root = ElementTree.fromstring(pod_picture("pod-0", shape, parts))
    total = full_mask(shape).bit_count()
    assert _drawn(root) == {"chip-free": total - 5, "chip-held": 2, "chip-s1": 2, "chip-broken": 1}
    assert f"4 of {total:,} chips are held, 2 chips by demo; 1 chip broken" == root[1].text
    assert [text.text for text in root.findall("text")] == ["A"]


def _links(shape: tuple[int, ...], chips: int, *, wraps: bool) -> list[tuple[str, int]]:
    """(direction, length in chips) of each line; one that leads round on both sides is longer by
    1.7 chips."""
    (path,) = [
        path.attrib["d"]
        for path in ElementTree.fromstring(
            pod_picture("p", shape, [Part("s1", "n", chips, wraps=wraps)])
        ).iter("path")
        if path.attrib["class"] == "link"
    ]
    return sorted((way, int(length)) for way, length in re.findall(r"([hv])(\d+)", path))


def test_links_join_neighbours_of_a_slice_and_lead_round_where_it_is_a_ring() -> None:
    assert _links((16, 2), 0x30003, wraps=False) == [("h", CELL)] * 2 + [("v", CELL)] * 2
    round_length = CELL + 2 * (CELL // 2 + STUB)
    assert (
        _links((2, 2), 0b1111, wraps=True) == [("h", round_length)] * 2 + [("v", round_length)] * 2
    )


def test_a_slice_that_reaches_over_the_end_of_a_torus_is_joined_there() -> None:
    ends = 0b1000000000000001  # the first and the last chip of a line of 16
    assert _links((16, 1), ends, wraps=False) == [("h", CELL // 2 + STUB)] * 2


def test_a_slice_leads_to_its_node_and_says_what_it_is() -> None:
    root = ElementTree.fromstring(
        pod_picture("p", (4, 4), [Part("s1", "n", 3, "A", url="/n?a=1&b=2", title="Node n\njob j")])
    )
    (link,) = root.iter("a")
    assert (link.attrib["href"], link[0].text, root.attrib["role"]) == (
        "/n?a=1&b=2",
        "Node n\njob j",
        "group",
    )


def test_the_largest_pod_stays_small_on_the_page() -> None:
    shape = (16, 20, 28)
    checkered = sum(1 << chip for chip in range(0, 16 * 20 * 28, 2))
    assert len(pod_picture("pod-0", shape, [Part("held", "", checkered)])) < 250_000
    halves = full_mask(shape) >> (16 * 20 * 14)
    assert len(pod_picture("pod-0", shape, [Part("held", "", halves, wraps=True)])) < 60_000


def test_letters_go_on_after_the_last() -> None:
    assert [letters_of(index) for index in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]


def test_names_of_users_are_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    text = pod_picture(evil, (2, 2), [Part("own", evil, 1, evil)])
    assert "<img" not in text
    ElementTree.fromstring(text)
