"""Cloud Monitoring: metrics and their time series."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from podyard.api import deps
from podyard.api.google_apis.call import ApiCall
from podyard.base.clock import NANOS_PER_SECOND, RealTime
from podyard.base.durations import parse_duration
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.access import identity
from podyard.control.jobs import time_series
from podyard.control.jobs.host_use import STEP_SECONDS
from podyard.control.jobs.time_series import METRICS, HostMetric, HostSeries, Sample

SPAN_SECONDS_MAX = 31 * 86_400  # there is nothing older than an hour
_TERM = re.compile(r"([\w.]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_AND = re.compile(r"\s+AND\s+|\s*\n\s*")
_LABELS = ("project_id", "zone", "node_id", "worker_id")
_ALIGNERS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "ALIGN_MEAN": lambda values: sum(values) / len(values),
    "ALIGN_MAX": max,
    "ALIGN_MIN": min,
}
_UNALIGNED = ("", "ALIGN_NONE")


class SeriesFilter(NamedTuple):
    """`labels`: of the resource, with the values that they must have."""

    metric: str
    labels: Mapping[str, str]


def list_descriptors(call: ApiCall) -> dict[str, Any]:
    text = call.value("filter")
    wanted = _read_filter(text).metric if text else ""
    types = [name for name in sorted(METRICS) if wanted in ("", name)]
    call.read(lambda uow: identity.project_row(uow, call.project))
    page, token = call.page(types, lambda name: name)
    answer: dict[str, Any] = {
        "metricDescriptors": [_descriptor(call.project, METRICS[name]) for name in page]
    }
    return answer | ({"nextPageToken": token} if token else {})


def list_series(call: ApiCall) -> dict[str, Any]:
    if call.value("orderBy") or call.value("aggregation.crossSeriesReducer") not in (
        "", "REDUCE_NONE",
    ):  # fmt: skip
        raise invalid("orderBy and crossSeriesReducer are not supported", "aggregation")
    if call.value("view") not in ("", "FULL", "HEADERS"):
        raise invalid(f"view {call.value('view')[:20]!r} is not FULL or HEADERS", "view")
    condition = _read_filter(call.value("filter"))
    metric = METRICS.get(condition.metric)
    if metric is None:
        raise PodyardError(
            Code.NOT_FOUND,
            f"Cannot find metric(s) that match type = {condition.metric[:120]!r}; there are "
            f"{', '.join(sorted(METRICS))}.",
        )
    span, align = _span(call), _aligner(call)
    history = deps.platform(call.request).host_use
    series = call.read(
        lambda uow: time_series.series_of(uow, call.caller, history, call.project, metric, span)
    )
    shown = [
        one
        for one in series
        if all(one.labels.get(name) == value for name, value in condition.labels.items())
    ]
    page, token = call.page(sorted(shown, key=_key), _key)
    has_points = call.value("view") != "HEADERS"
    answer: dict[str, Any] = {
        "timeSeries": [_message(metric, one, align, has_points=has_points) for one in page],
        "unit": metric.unit,
    }
    return answer | ({"nextPageToken": token} if token else {})


def _read_filter(text: str) -> SeriesFilter:
    """Terms `metric.type = "..."`, `resource.type = "..."` and `resource.labels.X = "..."`, joined
    by AND. Raises INVALID_ARGUMENT for any other filter."""
    metric, labels = "", dict[str, str]()
    for part in _AND.split(text.strip()):
        term = _TERM.fullmatch(part.strip().strip("()").strip())
        name, value = (term[1], term[2] or term[3] or "") if term else ("", "")
        label = name.removeprefix("resource.labels.").removeprefix("resource.label.")
        if name == "metric.type":
            metric = value
        elif name == "resource.type" and value == time_series.RESOURCE_TYPE:
            continue
        elif label != name and label in _LABELS:
            labels[label] = value
        else:
            raise invalid(
                f'filter {part[:80]!r} is not supported: use metric.type = "TYPE", resource.type = '
                f'"{time_series.RESOURCE_TYPE}" and resource.labels.NAME = "VALUE" with '
                f"{', '.join(_LABELS)}, joined by AND",
                "filter",
            )
    if not metric:
        raise invalid('the filter must name one metric: metric.type = "TYPE"', "filter")
    return SeriesFilter(metric, labels)


def _span(call: ApiCall) -> range:
    """The seconds of the interval; without a start it is the last step before its end."""
    end = _seconds(call.value("interval.endTime"), "interval.endTime")
    start_text = call.value("interval.startTime")
    start = _seconds(start_text, "interval.startTime") if start_text else end - STEP_SECONDS
    if not 0 <= end - start <= SPAN_SECONDS_MAX:
        raise invalid(
            f"interval: the end follows the start by at most {SPAN_SECONDS_MAX} seconds",
            "interval",
        )
    return range(start, end + 1)


def _seconds(text: str, field: str) -> int:
    try:
        return RealTime.from_rfc3339(text).nanos // NANOS_PER_SECOND
    except ValueError as error:
        raise invalid(f"{field}: {error}", field) from None


class _Alignment(NamedTuple):
    """`seconds`: the period, or 0 for points as they are."""

    seconds: int
    combine: Callable[[Sequence[float]], float]


def _aligner(call: ApiCall) -> _Alignment:
    name, period = (
        call.value("aggregation.perSeriesAligner"), call.value("aggregation.alignmentPeriod"),
    )  # fmt: skip
    if name in _UNALIGNED:
        return _Alignment(0, max)
    if name not in _ALIGNERS:
        raise invalid(
            f"perSeriesAligner {name[:40]!r}: use ALIGN_NONE, {', '.join(_ALIGNERS)}",
            "aggregation.perSeriesAligner",
        )
    try:
        seconds = parse_duration(period) // NANOS_PER_SECOND
    except ValueError as error:
        raise invalid(str(error), "aggregation.alignmentPeriod") from None
    if seconds < STEP_SECONDS:
        raise invalid(
            f"alignmentPeriod is shorter than {STEP_SECONDS}s", "aggregation.alignmentPeriod"
        )
    return _Alignment(seconds, _ALIGNERS[name])


def _align(samples: Sequence[Sample], alignment: _Alignment) -> list[Sample]:
    if not alignment.seconds:
        return list(samples)
    groups: dict[int, list[float]] = {}
    for sample in samples:
        begin = sample.begin // alignment.seconds * alignment.seconds
        groups.setdefault(begin, []).append(sample.value)
    return [
        Sample(begin, begin + alignment.seconds, alignment.combine(values))
        for begin, values in groups.items()
    ]


def _key(series: HostSeries) -> str:
    return "/".join(series.labels.get(name, "") for name in _LABELS)


def _descriptor(project: str, metric: HostMetric) -> dict[str, Any]:
    return {
        "name": f"projects/{project}/metricDescriptors/{metric.type}",
        "type": metric.type,
        "metricKind": "GAUGE",
        "valueType": _value_type(metric),
        "unit": metric.unit,
        "description": f"{metric.title}, of the past hour, each {STEP_SECONDS} seconds.",
        "displayName": metric.title,
        "monitoredResourceTypes": [time_series.RESOURCE_TYPE],
    }


def _value_type(metric: HostMetric) -> str:
    return "INT64" if metric.is_whole else "DOUBLE"


def _message(
    metric: HostMetric, series: HostSeries, alignment: _Alignment, *, has_points: bool
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "metric": {"type": metric.type},
        "resource": {"type": time_series.RESOURCE_TYPE, "labels": dict(series.labels)},
        "metricKind": "GAUGE",
        "valueType": _value_type(metric),
    }
    if has_points:
        samples = _align(series.samples, alignment)
        shown |= {"points": [_point(metric, sample) for sample in samples]}
    return shown


def _point(metric: HostMetric, sample: Sample) -> dict[str, Any]:
    """A gauge's interval is a moment: the end of the step."""
    moment = RealTime(sample.end * NANOS_PER_SECOND).rfc3339()
    value: dict[str, Any] = (
        {"int64Value": str(round(sample.value))}
        if metric.is_whole
        else {"doubleValue": sample.value}
    )
    return {"interval": {"startTime": moment, "endTime": moment}, "value": value}


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "monitoring.v3.projects.metricDescriptors.list": list_descriptors,
    "monitoring.v3.projects.timeSeries.list": list_series,
}
