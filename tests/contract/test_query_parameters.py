"""A query parameter that a path of Podyard's own REST does not know is refused, by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_billing_api import HERE
from tests.yard import ZONE, Yard, open_yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, clock_mode="virtual") as found:
        yield found


@pytest.mark.parametrize(
    ("path", "name", "use"),
    [
        (f"{HERE}/usage?nodes=n", "nodes", "use node"),
        (
            f"{HERE}/costs:explore?group-by=user",
            "group-by",
            "use groupBy, where, from, to, bucket, by",
        ),
        (f"{HERE}/costs?months=2026-03", "months", "use month"),
        (f"{HERE}/invoices?pageSize=1", "pageSize", "there are none here"),
        (f"{HERE}/events?pageSize=1&after=3", "after", "use newest, pageSize, pageToken"),
        (f"{HERE}/billingAccount?alt=json", "alt", "there are none here"),
        ("/podyard/v1/projects?filter=x", "filter", "there are none here"),
    ],
)
def test_an_unknown_parameter_is_refused(yard: Yard, path: str, name: str, use: str) -> None:
    message = yard.refused(400, "INVALID_ARGUMENT", "GET", path)
    assert message == f"unknown query parameter {name!r}: {use}"


@pytest.mark.parametrize("name", ["from", "to", "groupBy", "bucket", "by"])
def test_an_empty_value_is_not_taken_for_none(yard: Yard, name: str) -> None:
    yard.refused(400, "INVALID_ARGUMENT", "GET", f"{HERE}/costs:explore?{name}=")


def test_known_parameters_and_credentials_are_taken(yard: Yard) -> None:
    yard.ok("GET", f"{HERE}/events?page_size=1")
    assert yard.bare.get(f"{HERE}/usage", params={"access_token": yard.token}).status_code == 200
    # Google's paths have Google's rules.
    yard.ok("GET", f"/v2/projects/demo/locations/{ZONE}/nodes?alt=json")
