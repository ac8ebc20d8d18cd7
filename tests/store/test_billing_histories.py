"""Drawn cards and histories on both databases. `make money-histories` plays 2,000."""

from __future__ import annotations

import pytest

from tests.store.billing_histories import check_history


@pytest.mark.parametrize("seed", range(30))
def test_all_surfaces_say_the_same_of_a_history(seed: int) -> None:
    assert check_history(seed)["closed"]


@pytest.mark.usefixtures("postgresql_tables")
@pytest.mark.parametrize("seed", range(4))
def test_a_history_on_postgresql(seed: int, request: pytest.FixtureRequest) -> None:
    check_history(seed, request.getfixturevalue("postgresql_tables").take())
