"""Lines of JSON with a step are metrics, and no others."""

from __future__ import annotations

import pytest

from podyard.domain import metric_lines


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"step": 3, "loss": 0.5}', (3, {"loss": 0.5})),
        ('  {"loss": 1, "step": 0, "note": "x", "ok": true}\r', (0, {"loss": 1.0})),
        (
            '{"step": 1, "val": {"loss": 2, "deep": {"x": 1}}, "lr": 1e-3}',
            (1, {"val/loss": 2.0, "lr": 0.001}),
        ),
        ('{"step": 1, "loss": NaN, "acc": 1e400, "n": 3}', (1, {"n": 3.0})),
        ('{"step": 1, "loss": ' + "9" * 400 + ', "n": 3}', (1, {"n": 3.0})),
        ('{"step": 1, "' + "x" * 65 + '": 1, "n": 3}', (1, {"n": 3.0})),
        ('{"step": 1}', None),
        ('{"step": 1.5, "loss": 1}', None),
        ('{"step": true, "loss": 1}', None),
        ('{"step": -1, "loss": 1}', None),
        ('{"step": 99999999999, "loss": 1}', None),
        ('{"loss": 1}', None),
        ('[{"step": 1}]', None),
        ('step {"step": 1, "loss": 1}', None),
        ('{"step": ' + "[" * 3000 + "}", None),
        ("", None),
    ],
)
def test_a_line_is_a_point_or_none(line: str, found: object) -> None:
    assert metric_lines.read(line) == found


def test_a_line_has_a_limited_number_of_metrics() -> None:
    line = '{"step": 1, ' + ", ".join(f'"m{number}": 1' for number in range(1000)) + "}"
    read = metric_lines.read(line)
    assert read is not None and len(read[1]) == metric_lines.METRICS_MAX
