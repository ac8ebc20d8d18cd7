"""The drawing in docs/internals/architecture.md shows the layers and processes that there are."""

from __future__ import annotations

from podyard.stack.supervisor import STOP_SECONDS
from tests.house import draw_layers

PYPROJECT = (draw_layers.ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_drawing_is_that_of_the_contracts() -> None:
    drawn = draw_layers.draw(draw_layers.read_contracts(PYPROJECT))
    assert draw_layers.FILE.read_text(encoding="utf-8") == drawn, (
        f"stale: run {draw_layers.COMMAND}"
    )


def test_another_layer_room_or_pure_package_changes_the_drawing() -> None:
    contracts = draw_layers.read_contracts(PYPROJECT)
    drawn = draw_layers.draw(contracts)
    for old, new in (
        ('"podyard.engine",\n  "podyard.domain",', '"podyard.domain",\n  "podyard.engine",'),
        ('"podyard.control.platform",\n  "podyard.control.access",', '"podyard.control.access",'),
        ('  "podyard.scheduler",\n  "podyard.pricing.sku"', '  "podyard.pricing.sku"'),
    ):
        assert old in PYPROJECT, old
        assert (
            draw_layers.draw(draw_layers.read_contracts(PYPROJECT.replace(old, new, 1))) != drawn
        ), old


def test_every_package_and_process_is_drawn() -> None:
    contracts = draw_layers.read_contracts(PYPROJECT)
    assert {name for row in contracts.layers for name in row} == set(draw_layers.PACKAGES)
    assert set(draw_layers.CHILDREN) == set(STOP_SECONDS)
    assert all((draw_layers.ROOT / module).is_file() for module in draw_layers.GRANDCHILDREN)
