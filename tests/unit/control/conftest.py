"""A Podyard with one node and one pretended agent."""

from __future__ import annotations

import pytest

from tests.unit.control.gang import Gang
from tests.yard import Yard


@pytest.fixture
def gang(yard: Yard) -> Gang:
    yard.create("n")
    return Gang(yard)
