"""What several tests of hosts share."""

from __future__ import annotations

import pytest

from podyard.base.boxes import why_not
from tests.conftest import require


@pytest.fixture(scope="module", params=["on", "off"])
def boxes(request: pytest.FixtureRequest) -> str:
    """Hosts in boxes, and hosts that share the machine: what a test says holds for both."""
    if request.param == "on":
        require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    return str(request.param)
