"""torch_xla.debug.metrics: what was counted. There is no compiler here, so there are no
compilations to report."""

from __future__ import annotations

_counters: dict[str, int] = {}


def count(name: str) -> None:
    _counters[name] = _counters.get(name, 0) + 1


def counter_names() -> list[str]:
    return sorted(_counters)


def counter_value(name: str) -> int | None:
    return _counters.get(name)


def metric_names() -> list[str]:
    return []


def metric_data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]] | None:  # noqa: ARG001
    return None


def metrics_report() -> str:
    return "".join(
        f"Counter: {name}\n  Value: {value}\n" for name, value in sorted(_counters.items())
    )


def short_metrics_report(
    counter_names: list[str] | None = None,
    metric_names: list[str] | None = None,  # noqa: ARG001
) -> str:
    names = counter_names or ["MarkStep"]
    return "".join(f"Counter: {name}\n  Value: {_counters.get(name, 0)}\n" for name in names)


def executed_fallback_ops() -> list[str]:
    return []


def clear_counters() -> None:
    _counters.clear()


def clear_metrics() -> None:
    """There are none."""


def clear_all() -> None:
    clear_counters()
