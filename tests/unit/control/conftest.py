"""A Podyard with one node and one pretended agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


@pytest.fixture
def gang(yard: Yard) -> Gang:
    yard.create("n")
    return Gang(yard)
