"""What several tests of hosts share."""

from __future__ import annotations

import pytest

from podyard.base.boxes import why_not
from tests.conftest import require

_WITHOUT = pytest.param("off", marks=pytest.mark.long) if not why_not("on") else "off"


@pytest.fixture(scope="module", params=["on", _WITHOUT])
def boxes(request: pytest.FixtureRequest) -> str:
    """Hosts in boxes, and hosts that share the machine: what a test says holds for both. Where
    boxes work, `make long` alone runs what shares the machine."""
    if request.param == "on":
        require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    return str(request.param)
