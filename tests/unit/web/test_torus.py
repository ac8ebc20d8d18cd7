"""The picture of a pod: every chip once, in what holds it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from podyard.base.ids import letters_of
from podyard.hardware.torus import full_mask
from podyard.web.torus import CELL, CELL_GAP, Part, pod_picture


def _drawn(root: ElementTree.Element) -> dict[str, int]:
    """Chips by kind, counted by the lengths of their bars."""
    found = {}
    for path in root.findall("path"):
        widths = re.findall(r"M\d+ \d+h(\d+)v", path.attrib["d"]) if path.attrib["class"] != "cube" else []
        found[path.attrib["class"]] = sum((int(width) + CELL_GAP) // CELL for width in widths)
    return found


@pytest.mark.parametrize("shape", [(4, 4), (16, 16), (4, 4, 4), (16, 16, 16), (16, 20, 28)])
def test_every_chip_is_drawn_once_in_what_holds_it(shape: tuple[int, ...]) -> None:
    own, held, broken = 0b11, 0b1100, 1 << 15
    parts = [Part("held", "", held), Part("s1", "demo", own, "A"), Part("broken", "", broken)]
    root = ElementTree.fromstring(pod_picture("pod-0", shape, parts))
    total = full_mask(shape).bit_count()
    drawn = _drawn(root)
    drawn.pop("cube", None)
    assert drawn == {"chip-free": total - 5, "chip-held": 2, "chip-s1": 2, "chip-broken": 1}
    assert f"4 of {total:,} chips are held, 2 chips by demo; 1 chip broken" == root[1].text
    assert [text.text for text in root.findall("text")] == ["A"]


def test_the_largest_pod_stays_small_on_the_page() -> None:
    checkered = sum(1 << chip for chip in range(0, 16 * 20 * 28, 2))
    assert len(pod_picture("pod-0", (16, 20, 28), [Part("held", "", checkered)])) < 300_000
    halves = full_mask((16, 20, 28)) >> (16 * 20 * 14)
    assert len(pod_picture("pod-0", (16, 20, 28), [Part("held", "", halves)])) < 60_000


def test_letters_go_on_after_the_last() -> None:
    assert [letters_of(index) for index in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]


def test_names_of_users_are_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    text = pod_picture(evil, (2, 2), [Part("own", evil, 1, evil)])
    assert "<img" not in text
    ElementTree.fromstring(text)
