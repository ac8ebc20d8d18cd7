"""A plugin for pytest: leaves out what is for `make long` alone, and slow tests of other parts (tests/parts.py)."""

from __future__ import annotations

import pytest

from tests import long_runs, parts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, gone = [], []
    part = parts.chosen()
    others = set() if part is None else parts.left_out((item.location[0] for item in items if _is(item, "slow")), *part)
    for item in items:
        is_long = _is(item, "long") and not long_runs.IS_LONG
        is_of_others = _is(item, "slow") and item.location[0] in others
        (gone if is_long or is_of_others else kept).append(item)
    config.hook.pytest_deselected(items=gone)
    items[:] = kept


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None
