"""A plugin for pytest: leaves out what is for `make long` alone, and tests of other parts
(tests/parts.py)."""

from __future__ import annotations

import pytest

from tests import long_runs, parts

FAST_FOLDERS = ("tests/unit/", "tests/property/")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    part = parts.chosen()
    others = (
        set()
        if part is None
        else parts.left_out((_file(item) for item in items if _is_dealt(item)), *part)
    )
    for item in items:
        is_long = _is(item, "long") and not long_runs.IS_LONG
        is_of_others = _is_dealt(item) and _file(item) in others
        (gone if is_long or is_of_others else kept).append(item)
    config.hook.pytest_deselected(items=gone)
    items[:] = kept


def _file(item: pytest.Item) -> str:
    return item.location[0]


def _is_dealt(item: pytest.Item) -> bool:
    """All but the tests of `make fast`."""
    return _is(item, "slow") or not _file(item).startswith(FAST_FOLDERS)


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None
