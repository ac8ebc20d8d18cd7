"""The picture of a pod: every chip once, in what holds it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from podyard.base.ids import letters_of
from podyard.hardware.torus import full_mask
from podyard.web.nodes.pod_body import picture
from podyard.web.nodes.torus import CELL, STUB, Part, pod_picture


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


CUBE = (1 << 64) - 1  # all chips of a pod of 4x4x4


def test_boxes_hold_exactly_the_chips_they_are_made_of() -> None:
    shape = (4, 4, 4)
    for chips in (CUBE, 0b1011, CUBE & ~(1 << 21), 0x000F_000F_0000_00FF):
        boxes = picture.boxes_of(shape, chips)
        covered = [
            x + 4 * y + 16 * z
            for box in boxes
            for x in range(box.start[0], box.stop[0])
            for y in range(box.start[1], box.stop[1])
            for z in range(box.start[2], box.stop[2])
        ]
        assert sorted(covered) == [chip for chip in range(64) if chips >> chip & 1]
    assert len(picture.boxes_of(shape, CUBE)) == 1


def test_a_body_draws_what_is_nearer_later_with_letter_and_link() -> None:
    low, high = 0xFFFF, 0xFFFF << 48  # the lowest and the highest layer
    near = Part("s2", "above", high, "B", "/b", wraps=True)
    far = Part("s1", "below", low, "A", "/a", wraps=False)
    for parts in ([near, far], [far, near]):
        body = picture.body_picture("p", (4, 4, 4), parts)
        assert body is not None
        assert body.index('href="/a"') < body.index('href="/b"'), "the higher one hides the lower"
        assert ">A</text>" in body and ">B</text>" in body
        assert body.count('class="link"') == 2
        assert "2 slices in their places" in body


def test_a_flat_pod_and_one_of_too_many_boxes_have_no_body() -> None:
    assert picture.body_picture("p", (16, 16), [Part("s1", "a", 1)]) is None
    scattered = sum(1 << c for c in range(512) if (c + c // 8 + c // 64) % 2)
    assert picture.body_picture("p", (8, 8, 8), [Part("s1", "a", scattered)]) is None
