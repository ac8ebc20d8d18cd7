"""A case of `replay`: read from JSON, and checked. Every error is INVALID_ARGUMENT and starts with
the field's path."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NoReturn

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.base.money import PARTS_PER_NANO, Amount, nanos_from_decimal_text
from podyard.domain import months
from podyard.domain.invoice import BillingPolicy, Commitment, Credit, JobSpan
from podyard.domain.usage import PriceUnit, PriceVersion, UsageEvent
from podyard.pricing.attribution import IDLE
from podyard.pricing.bill import Resource, Terms
from podyard.pricing.commitments import OWN
from podyard.pricing.meter import MeterPolicy
from podyard.pricing.sku import Sku, make_sku

EVENTS_MAX = 100_000  # of one case: about a node for each second of a day
# chips or GiB of one resource; no sum of them is shown with more digits than one can read
QUANTITY_MAX = 1_000_000_000
SEQ_MAX = 1 << 63  # as databases count
SECONDS_MAX = 366 * 86_400  # of a free or minimum time: what is longer is a mistake
DECIMALS_MAX = 9  # of a currency: prices have no more

_KEYS = ("id", "policy", "rate_card", "resources", "events", "as_of")
_OPTIONAL = ("credits", "commitments", "jobs", "budget", "issued", "open_month")
_REMARKS = ("title", "tags", "hand_checked", "note", "expect")
_POLICY = (
    *("billable_states", "preempt_free_s", "vm_min_s", "invoice_tz"),
    *("rounding", "currency", "minor", "fx", "tax"),
)
_KINDS = ("tpu", "vm", "disk")
_SCHEDULING = ("ON_DEMAND", "PREEMPTIBLE", "SPOT", "RESERVED")
_UNITS = {unit.replace("gib", "GiB"): unit for unit in PriceUnit}
# up to a quadrillion: no price, rate or bill has more digits
_DECIMAL = re.compile(r"-?\d{1,15}(\.\d{1,12})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """`price_texts`: each price version's price as the case writes it. `rates`: the months that
    have an exchange rate, None if one rate is for all. `has_issued`: the case says what was issued,
    were it nothing."""

    resources: Mapping[str, Resource]
    events: list[UsageEvent]
    terms: Terms
    as_of: PlatformTime
    price_texts: Mapping[str, str]
    rates: Mapping[str, Fraction] | None
    has_issued: bool


def read_case(data: Any) -> Case:
    """Raises INVALID_ARGUMENT that starts with the path of the field that is wrong."""
    case = _object(data, "", _KEYS, (*_OPTIONAL, *_REMARKS))
    _text(case, "id", "")
    policy = _policy(case["policy"])
    texts: dict[str, str] = {}
    skus = _rate_card(case["rate_card"], texts)
    resources = _resources(case["resources"], skus, _Meters.read(case["policy"]))
    terms = Terms(
        policy=policy,
        commitments=_commitments(case.get("commitments", []), skus, texts),
        credits=_credits(case.get("credits", [])),
        jobs=_jobs(case["jobs"], resources) if "jobs" in case else None,
        budgets=[_budget(case["budget"])] if "budget" in case else [],
        issued=_read_issued(case.get("issued", {}), policy),
        open_month=_month(case, "open_month", "") if "open_month" in case else None,
    )
    rates = policy.exchange if isinstance(case["policy"]["fx"], dict) else None
    events = _events(case["events"], resources)
    return Case(resources, events, terms, _time(case, "as_of", ""), texts, rates, "issued" in case)


def _policy(value: Any) -> BillingPolicy:
    policy = _object(value, "policy", _POLICY)
    if policy["rounding"] != "HALF_UP":
        _refuse("policy.rounding", f"{policy['rounding']!r}: only HALF_UP is known")
    zone = _text(policy, "invoice_tz", "policy")
    try:
        months.check_zone(zone)
    except PodyardError as error:
        _refuse("policy.invoice_tz", error.message)
    currency = _text(policy, "currency", "policy")
    if _CURRENCY.fullmatch(currency) is None:
        _refuse("policy.currency", f"{currency!r} is not a currency such as USD")
    one_rate: Fraction = Fraction(1)
    rates: dict[str, Fraction] = {}
    if isinstance(policy["fx"], dict):
        for month in policy["fx"]:
            _check_month(month, "policy.fx")
            rates[month] = _rate(policy["fx"], month, "policy.fx")
    else:
        one_rate = _rate(policy, "fx", "policy")
    return BillingPolicy(
        time_zone=zone,
        currency=currency,
        decimals=_integer(policy, "minor", "policy", DECIMALS_MAX),
        tax=_decimal(policy, "tax", "policy"),
        exchange_default=one_rate,
        exchange=rates,
    )


def _rate(row: Mapping[str, Any], key: str, path: str) -> Fraction:
    found = _decimal(row, key, path)
    if not found:
        _refuse(_join(path, key), "an exchange rate is not 0")
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Meters:
    """The meters of a case's policy for each kind of resource."""

    states: Mapping[str, frozenset[str]]
    preempt_free_seconds: int
    vm_minimum_seconds: int

    @classmethod
    def read(cls, policy: Mapping[str, Any]) -> _Meters:
        path = "policy.billable_states"
        kinds = _object(policy["billable_states"], path, (), _KINDS)
        for kind, states in kinds.items():
            if not isinstance(states, list) or not all(isinstance(state, str) for state in states):
                _refuse(f"{path}.{kind}", f"{_quote(states)} is not a list of states")
        return cls(
            {kind: frozenset(states) for kind, states in kinds.items()},
            _integer(policy, "preempt_free_s", "policy", SECONDS_MAX),
            _integer(policy, "vm_min_s", "policy", SECONDS_MAX),
        )

    def of(self, kind: str, scheduling: str, path: str) -> MeterPolicy:
        if kind not in self.states:
            _refuse(f"policy.billable_states.{kind}", f"is missing, and {path} is a {kind}")
        can_be_preempted = kind == "tpu" and scheduling in ("PREEMPTIBLE", "SPOT")
        return MeterPolicy(
            billable_states=self.states[kind],
            preempt_free_seconds=self.preempt_free_seconds if can_be_preempted else 0,
            minimum_run_seconds=self.vm_minimum_seconds if kind == "vm" else 0,
        )


def _rate_card(value: Any, texts: dict[str, str]) -> dict[str, Sku]:
    """SKUs by id; `texts` gets each version's price as it is written."""
    versions: dict[str, list[PriceVersion]] = {}
    units: dict[str, PriceUnit] = {}
    for path, row in _rows(value, "rate_card", ("sku", "unit", "usd", "effective_from")):
        sku_id = _text(row, "sku", path)
        if sku_id.startswith(OWN):
            _refuse(f"{path}.sku", f"names that start with {OWN!r} are for commitments")
        unit = _UNITS.get(_text(row, "unit", path))
        if unit is None:
            _refuse(f"{path}.unit", f"{row['unit']!r} is not one of {', '.join(_UNITS)}")
        if units.setdefault(sku_id, unit) != unit:
            _refuse(
                f"{path}.unit",
                f"{row['unit']!r} is another unit than that of an earlier price of {sku_id}",
            )
        version = _version(sku_id, row, "effective_from", path)
        if version.version_id in texts:
            _refuse(
                f"{path}.effective_from", f"{sku_id} has another price from {row['effective_from']}"
            )
        texts[version.version_id] = row["usd"]
        versions.setdefault(sku_id, []).append(version)
    return {sku_id: make_sku(sku_id, units[sku_id], found) for sku_id, found in versions.items()}


def _version(sku_id: str, row: Mapping[str, Any], key: str, path: str) -> PriceVersion:
    since = PlatformTime(_second(row, key, path) * NANOS_PER_SECOND)
    return PriceVersion(f"{sku_id}@{since.rfc3339()}", since, _nanos(row, path), "case")


def _resources(value: Any, skus: Mapping[str, Sku], meters: _Meters) -> dict[str, Resource]:
    found: dict[str, Resource] = {}
    for path, row in _rows(value, "resources", ("id", "kind", "sku", "quantity"), ("scheduling",)):
        resource_id = _new_id(row, path, found)
        if resource_id.startswith(OWN):
            _refuse(f"{path}.id", f"names that start with {OWN!r} are for commitments")
        kind = _one_of(row, "kind", path, _KINDS)
        scheduling = (
            _one_of(row, "scheduling", path, _SCHEDULING) if "scheduling" in row else "ON_DEMAND"
        )
        found[resource_id] = Resource(
            resource_id=resource_id,
            kind=kind,
            sku=_sku(row, "sku", path, skus),
            quantity=_integer(row, "quantity", path, QUANTITY_MAX),
            policy=meters.of(kind, scheduling, path),
        )
    return found


def _events(value: Any, resources: Mapping[str, Resource]) -> list[UsageEvent]:
    if isinstance(value, list) and len(value) > EVENTS_MAX:
        _refuse("events", f"are {len(value)}: at most {EVENTS_MAX} are read")
    found = []
    for path, row in _rows(value, "events", ("id", "resource", "seq", "t", "state")):
        resource_id = _resource(row, path, resources)
        seq = row["seq"]
        if not isinstance(seq, int) or isinstance(seq, bool) or not -SEQ_MAX <= seq < SEQ_MAX:
            _refuse(f"{path}.seq", f"{_quote(seq)} is not an integer of 64 bits")
        state = _text(row, "state", path)
        found.append(
            UsageEvent(_text(row, "id", path), resource_id, seq, state, _time(row, "t", path))
        )
    return found


def _commitments(value: Any, skus: Mapping[str, Sku], texts: dict[str, str]) -> list[Commitment]:
    found: dict[str, Commitment] = {}
    for path, row in _rows(
        value, "commitments", ("id", "covers", "quantity", "usd", "from", "until")
    ):
        commitment_id = _new_id(row, path, found)
        covered = _sku(row, "covers", path, skus)
        version = _version(OWN + commitment_id, row, "from", path)
        texts[version.version_id] = row["usd"]
        start, end = _second(row, "from", path), _second(row, "until", path)
        if end < start:
            _refuse(f"{path}.until", f"{row['until']} is before {row['from']}")
        quantity = _integer(row, "quantity", path, QUANTITY_MAX)
        found[commitment_id] = Commitment(
            commitment_id, covered.sku_id, covered.unit, quantity, version, start, end
        )
    return list(found.values())


def _credits(value: Any) -> list[Credit]:
    found: dict[str, Credit] = {}
    for path, row in _rows(value, "credits", ("id", "usd", "from_month", "until_month")):
        credit_id = _new_id(row, path, found)
        first, last = _month(row, "from_month", path), _month(row, "until_month", path)
        if last < first:
            _refuse(f"{path}.until_month", f"{last} is before {first}")
        found[credit_id] = Credit(credit_id, _amount(row, path), first, last)
    return list(found.values())


def _jobs(value: Any, resources: Mapping[str, Resource]) -> list[JobSpan]:
    found = []
    for path, row in _rows(value, "jobs", ("id", "resource", "start"), ("end",)):
        job_id = _text(row, "id", path)
        if job_id == IDLE:
            _refuse(f"{path}.id", f"{IDLE!r} is the name of what no job has")
        start = _time(row, "start", path)
        end = None if row.get("end") is None else _time(row, "end", path)
        if end is not None and end < start:
            _refuse(f"{path}.end", f"{row['end']} is before {row['start']}")
        found.append(JobSpan(job_id, _resource(row, path, resources), start, end))
    return found


def _budget(value: Any) -> Amount:
    return _amount(_object(value, "budget", ("usd",)), "budget")


def _read_issued(value: Any, policy: BillingPolicy) -> dict[str, int]:
    if not isinstance(value, dict):
        _refuse("issued", "is not an object of months and totals")
    found = {}
    for month in value:
        _check_month(month, "issued")
        minor = _decimal(value, month, "issued", signed=True) * 10**policy.decimals
        if minor.denominator != 1:
            _refuse(f"issued.{month}", f"{value[month]!r} has more than {policy.decimals} decimals")
        found[month] = int(minor)
    return found


# What a value must be. `path` is where its row stands.


def _object(
    value: Any, path: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(path or "case", f"{_quote(value)} is not an object")
    for key in value:
        if key not in keys and key not in optional:
            _refuse(_join(path, key), "is not a known key")
    for key in keys:
        if key not in value:
            _refuse(_join(path, key), "is missing")
    return value


def _rows(
    value: Any, path: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list):
        _refuse(path, f"{_quote(value)} is not a list")
    for index, row in enumerate(value):
        where = f"{path}[{index}]"
        yield where, _object(row, where, keys, optional)


def _text(row: Mapping[str, Any], key: str, path: str) -> str:
    value = row[key]
    if not isinstance(value, str) or not value:
        _refuse(_join(path, key), f"{_quote(value)} is not a text")
    return value


def _one_of(row: Mapping[str, Any], key: str, path: str, names: tuple[str, ...]) -> str:
    value = row[key]
    if value not in names:
        _refuse(_join(path, key), f"{_quote(value)} is not one of {', '.join(names)}")
    return str(value)


def _new_id(row: Mapping[str, Any], path: str, known: Mapping[str, Any]) -> str:
    found = _text(row, "id", path)
    if found in known:
        _refuse(_join(path, "id"), f"{found!r} is there twice")
    return found


def _resource(row: Mapping[str, Any], path: str, resources: Mapping[str, Resource]) -> str:
    found = _text(row, "resource", path)
    if found not in resources:
        _refuse(_join(path, "resource"), f"{found!r} is not one of the resources")
    return found


def _sku(row: Mapping[str, Any], key: str, path: str, skus: Mapping[str, Sku]) -> Sku:
    sku_id = _text(row, key, path)
    if sku_id not in skus:
        _refuse(_join(path, key), f"{sku_id!r} has no price in rate_card")
    return skus[sku_id]


def _integer(row: Mapping[str, Any], key: str, path: str, most: int) -> int:
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        _refuse(_join(path, key), f"{_quote(value)} is not an integer from 0 to {most}")
    return value


def _decimal(row: Mapping[str, Any], key: str, path: str, *, signed: bool = False) -> Fraction:
    value = row[key]
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        _refuse(
            _join(path, key), f'{_quote(value)} is not a decimal number as text, such as "4.50"'
        )
    if value.startswith("-") and not signed:
        _refuse(_join(path, key), f"{value} is negative")
    return Fraction(value)


def _nanos(row: Mapping[str, Any], path: str) -> int:
    """Of the field `usd`."""
    _decimal(row, "usd", path)
    try:
        return nanos_from_decimal_text(row["usd"])
    except ValueError as error:
        _refuse(f"{path}.usd", str(error))


def _amount(row: Mapping[str, Any], path: str) -> Amount:
    return Amount(_nanos(row, path) * PARTS_PER_NANO)


def _time(row: Mapping[str, Any], key: str, path: str) -> PlatformTime:
    try:
        return PlatformTime.from_rfc3339(_text(row, key, path))
    except ValueError as error:
        _refuse(_join(path, key), str(error))


def _second(row: Mapping[str, Any], key: str, path: str) -> int:
    second, rest = divmod(_time(row, key, path).nanos, NANOS_PER_SECOND)
    if rest:
        _refuse(_join(path, key), f"{row[key]} is not a whole second")
    return second


def _month(row: Mapping[str, Any], key: str, path: str) -> str:
    return _check_month(_text(row, key, path), _join(path, key))


def _check_month(month: str, path: str) -> str:
    try:
        months.index_of(month)
    except PodyardError as error:
        _refuse(path, error.message)
    return month


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _quote(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _refuse(path: str, what: str) -> NoReturn:
    raise invalid(f"{path}: {what}", path)
