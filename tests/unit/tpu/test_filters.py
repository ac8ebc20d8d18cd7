"""Filters and orders of lists, as AIP-160 and AIP-132 define them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.tpu import filters
from podyard.base.errors import PodyardError

ITEMS: list[dict[str, Any]] = [
    {
        "name": "projects/p/locations/z/operations/a",
        "done": True,
        "metadata": {"verb": "create", "createTime": "2026-03-01T00:00:00Z"},
    },
    {
        "name": "projects/p/locations/z/operations/b",
        "done": False,
        "metadata": {"verb": "delete", "createTime": "2026-03-02T00:00:00Z"},
        "labels": {"team": "x", "size": "12"},
    },
    {
        "name": "projects/p/locations/z/operations/c",
        "done": False,
        "kinds": [{"type": "V4"}, {"type": "V2"}],
    },
]


def found(text: str) -> str:
    matches = filters.matcher(text)
    return "".join(item["name"][-1] for item in ITEMS if matches(item))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "abc"),
        ("done=true", "a"),
        ("done = false", "bc"),
        ("NOT done=true", "bc"),
        ("-done=true", "bc"),
        ("done!=true", "bc"),
        ('metadata.verb="create"', "a"),
        ("metadata.verb:create", "a"),
        ("metadata.create_time > 2026-03-01T12", "b"),
        ('metadata.createTime <= "2026-03-01T00:00:00Z"', "a"),
        ("labels.team:*", "b"),
        ("labels:team", "b"),
        ("labels.size > 9", "b"),
        ("labels.size < -3", ""),
        ("kinds.type=V2", "c"),
        ("metadata.verb=create OR metadata.verb=delete", "ab"),
        ("metadata.verb=create OR metadata.verb=delete done=false", "b"),
        ("done=false AND (labels.team=x OR kinds.type=V4)", "bc"),
        ("name:operations", "abc"),
        ('name="*operations/a"', "a"),
        ('name="projects/p/*"', "abc"),
        ("delete", "b"),
        (r'metadata.verb="cre\"ate"', ""),
        ("nothing=x", ""),
        ("nothing!=x", "abc"),
    ],
)
def test_a_filter_finds(text: str, wanted: str) -> None:
    assert found(text) == wanted


@pytest.mark.parametrize(
    "text", ["a=", "(a=b", "a=b)", "=b", 'a="b', "a=b AND", "!", "NOT", "(" * 60 + "a", "x" * 5000]
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(PodyardError) as refused:
        filters.matcher(text)
    assert "filter" in refused.value.message


@given(st.text(alphabet="ab:=<>!()\"' ANDORT-*.\\", max_size=40))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    try:
        found(text)
    except PodyardError as error:
        assert error.details


def test_orders() -> None:
    def order(text: str) -> str:
        return "".join(item["name"][-1] for item in filters.order(ITEMS, text))

    assert order("name desc") == "cba"
    assert order("metadata.verb, name desc") == "cab"
    assert order("done,name desc") == "cba"
    for wrong in ("name up", "nothing", "name desc desc"):
        with pytest.raises(PodyardError):
            order(wrong)
