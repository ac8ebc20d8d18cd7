"""Makes deploy/grafana/podyard.json: `python -m tests.house.dashboard`. A test compares it with the
file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "podyard.json"
# (title, unit, [(expression, legend)])
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Nodes", "short", (("sum by (state) (podyard_nodes)", "{{state}}"),)),
    ("Jobs", "short", (("sum by (state) (podyard_jobs)", "{{state}}"),)),
    ("Agents", "short", (("max by (state) (podyard_agents)", "{{state}}"),)),
    ("Replicas and hosts", "short", (
        ("max by (state) (podyard_replicas)", "replicas {{state}}"),
        ("max by (state) (podyard_hosts)", "hosts {{state}}"),
    )),
    ("Queued resources", "short", (("max by (state) (podyard_queued_resources)", "{{state}}"),)),
    ("Operations running", "short", (("max(podyard_operations_running)", "running"),)),
    ("Oldest operation", "s", (("max(podyard_operation_oldest_seconds)", "age"),)),
    ("Messages that wait", "short", (("max(podyard_messages_unsent)", "unsent"),)),
    ("Age of the oldest message, and of the first overdue timer", "s", (
        ("max(podyard_message_oldest_seconds)", "message"),
        ("max(podyard_timer_overdue_seconds)", "timer"),
    )),
    ("Leader", "short", (
        ("max(podyard_loop_leads)", "a loop leads"),
        ("increase(podyard_loop_leaders_total[5m])", "changes in 5 minutes"),
    )),
    ("Requests", "reqps", (("sum by (code) (rate(podyard_http_requests_total[1m]))", "{{code}}"),)),
    ("Time of requests", "s", (
        ("histogram_quantile(0.5, sum by (le) (rate(podyard_http_request_seconds_bucket[5m])))",
            "p50"),
        ("histogram_quantile(0.99, sum by (le) (rate(podyard_http_request_seconds_bucket[5m])))",
            "p99"),
    )),
    ("Free disk", "bytes", (("podyard_disk_free_bytes", "{{instance}}"),)),
    ("Platform time behind UTC", "s", (("max(podyard_clock_lag_seconds)", "behind"),)),
)  # fmt: skip
COLUMNS, HEIGHT, WIDTH = 2, 8, 12  # of Grafana's grid of 24 columns


def dashboard() -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    panels = []
    for index, (title, unit, queries) in enumerate(PANELS):
        row, column = divmod(index, COLUMNS)
        targets = [
            {
                "datasource": source,
                "expr": expression,
                "legendFormat": legend,
                "refId": chr(ord("A") + number),
            }
            for number, (expression, legend) in enumerate(queries)
        ]
        panels.append(
            {
                "id": index + 1,
                "type": "timeseries",
                "title": title,
                "datasource": source,
                "gridPos": {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row * HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": targets,
            }
        )
    variable = {
        "name": "source",
        "type": "datasource",
        "query": "prometheus",
        "label": "Data source",
    }
    return {
        "title": "Podyard",
        "uid": "podyard",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [variable]},
        "panels": panels,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
