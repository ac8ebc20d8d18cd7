"""A plugin for pytest: `--tier` leaves out the tests of the other tier; both leave out those for
`make long`."""

from __future__ import annotations

import pytest

from tests import long_runs
from tests.tiers import Tier, tier_of


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers = [tier.value for tier in Tier]
    parser.addoption(
        "--tier", choices=tiers, help="run the tests of one tier alone (tests/tiers.py)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    selected: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_long = item.get_closest_marker("long") is not None and not long_runs.IS_LONG
        of_tier = tier is None or _tier_of(item) == tier
        (selected if of_tier and not is_long else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = selected


def _tier_of(item: pytest.Item) -> Tier:
    markers = {marker.name for marker in item.iter_markers()}
    return tier_of(item.location[0], markers, on_postgresql=_is_on_postgresql(item))


def _is_on_postgresql(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    kind = item.callspec.params.get("database_kind") if hasattr(item, "callspec") else None
    return kind == "postgresql" or (kind is None and "postgresql_url" in item.fixturenames)
