"""The cost of a month's usage on other terms: another accelerator type, region or usage class, or
a commitment. The seconds stay those that were used.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills, commitments
from podyard.control.billing.costs import charges_of, window_of
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.invoice import Commitment
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.domain.usage import BilledKind, BilledResource, UsageRecord, node_key_of
from podyard.hardware.accelerator_types import parse
from podyard.pricing.amounts import parts_per_second, total
from podyard.pricing.bill import Resource, resources_of
from podyard.pricing.sku import RateCard


@dataclasses.dataclass(frozen=True, slots=True)
class TermsChange:
    """Other terms: an accelerator type, region or usage class for all nodes, or for those of type
    `of_type`, and a commitment to `commitment_quantity` of them for the whole time. None: as it
    was."""

    accelerator_type: str | None = None
    region: str | None = None
    usage_class: UsageClass | None = None
    commitment_years: int | None = None
    commitment_quantity: int = 1
    of_type: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UsageTerms:
    """The terms of nodes that have one price. `nanos_per_hour`: the price of one of them now, with
    its hosts where these are charged; None without a price."""

    accelerator_type: str
    region: str
    usage_class: UsageClass
    nanos_per_hour: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIfLine:
    """The cost of nodes of the same terms, as it was and as it would have been. `before` and
    `after` None: storage, commitments and what else belongs to no node. `seconds`: billed, of all
    nodes together."""

    before: UsageTerms | None
    after: UsageTerms | None
    seconds: int
    actual: Amount
    changed: Amount


@dataclasses.dataclass(frozen=True, slots=True)
class WhatIf:
    """The cost of the same seconds, as it was and as it would have been; `held`: nodes that would
    have no price; `not_sold`: why a commitment is missing where some nodes are; `lines`: all of
    it by type, region and usage class, the highest cost first."""

    month: str
    actual: Amount
    changed: Amount
    held: Sequence[tuple[str, str]]
    not_sold: Sequence[str] = ()
    lines: Sequence[WhatIfLine] = ()


_Terms = tuple[UsageTerms | None, UsageTerms | None]
_NO_NODE: _Terms = (None, None)


def what_if(
    uow: UnitOfWork,
    card: RateCard,
    principal: Principal,
    project: str,
    month: str | None,
    change: TermsChange,
) -> WhatIf:
    """The bill of a month (None: the present one) if its nodes had been others. The seconds are
    those that were used: a faster type would have needed fewer. Raises INVALID_ARGUMENT for an
    unknown type, NOT_FOUND as for commitments."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    month = account.month_of(uow.now) if month is None else month
    for name in (change.accelerator_type, change.of_type):
        if name is not None:
            parse(name)  # it raises for an unknown type
    window = window_of(account, month, uow.now)
    facts = bills.billed_resources(uow, card, [project])
    terms = bills.project_terms(uow, account)
    before = resources_of(card, facts)
    actual = charges_of(uow, project, before, terms, window)
    others = {key: _apply_change(node, change) for key, node in facts.items()}
    resources = resources_of(card, others)
    not_sold: list[str] = []
    if change.commitment_years is not None:
        bought, not_sold = _commitments(
            uow, card, project, others, change, change.commitment_years, window
        )
        terms = dataclasses.replace(terms, commitments=[*terms.commitments, *bought])
    changed = charges_of(uow, project, resources, terms, window)
    held = [
        (facts[key].name, resource.held_because)
        for key, resource in resources.items()
        if resource.sku is None
    ]
    lines = _lines(
        _terms_of(facts, before, uow.now), _terms_of(others, resources, uow.now), actual, changed
    )
    return WhatIf(month, total(actual), total(changed), held, not_sold, lines)


def _lines(
    before: Mapping[str, UsageTerms],
    after: Mapping[str, UsageTerms],
    actual: Iterable[UsageRecord],
    changed: Iterable[UsageRecord],
) -> list[WhatIfLine]:
    """Sum the charges of nodes by the terms that they had and would have had."""
    seconds: Counter[_Terms] = Counter()
    sums: tuple[Counter[_Terms], Counter[_Terms]] = (Counter(), Counter())
    for parts, charges in zip(sums, (actual, changed), strict=True):
        for charge in charges:
            node = node_key_of(charge.resource_id)
            key = (before.get(node), after.get(node))
            parts[key] += parts_per_second(charge) * charge.seconds
            if charges is actual and charge.resource_id == node and key != _NO_NODE:
                seconds[key] += charge.seconds
    lines = [
        WhatIfLine(*key, seconds[key], Amount(sums[0][key]), Amount(sums[1][key]))
        for key in dict.fromkeys((*sums[0], *sums[1]))
    ]
    return sorted(lines, key=lambda line: max(line.actual.parts, line.changed.parts), reverse=True)


def _terms_of(
    nodes: Mapping[str, BilledResource], resources: Mapping[str, Resource], now: PlatformTime
) -> Mapping[str, UsageTerms]:
    """Return the terms of each node by its key, and nothing for storage."""
    prices: dict[str, int] = {}
    for key, resource in resources.items():
        version = None if resource.sku is None else resource.sku.version_at(now)
        if version is not None:
            node = node_key_of(key)
            prices[node] = prices.get(node, 0) + version.nanos * resource.quantity
    return {
        key: UsageTerms(node.type, region_of(node.zone), node.usage_class, prices.get(key))
        for key, node in nodes.items()
        if node.kind is BilledKind.NODE
    }


def _apply_change(node: BilledResource, change: TermsChange) -> BilledResource:
    if node.kind.is_storage or change.of_type not in (None, node.type):
        return node
    zone = node.zone if change.region is None else f"{change.region}-a"
    return dataclasses.replace(
        node,
        zone=zone,
        type=change.accelerator_type or node.type,
        usage_class=change.usage_class or node.usage_class,
    )


def _commitments(
    uow: UnitOfWork,
    card: RateCard,
    project: str,
    others: Mapping[str, BilledResource],
    change: TermsChange,
    years: int,
    window: range,
) -> tuple[list[Commitment], list[str]]:
    """A commitment to each type in each region that the nodes would have had, which would have
    stood for the whole month, and why there is none where it is not sold. Raises NOT_FOUND when it
    is sold nowhere."""
    nodes = (node for node in others.values() if node.kind is BilledKind.NODE)
    kinds = sorted({(node.type, node.region) for node in nodes})
    bought: list[Commitment] = []
    not_sold: list[str] = []
    for kind, region in kinds:
        wanted = commitments.CommitmentRequest(
            change.commitment_quantity, years, accelerator_type=kind, zone=f"{region}-a"
        )
        try:
            one = commitments.purchase(
                uow, card, project, wanted, f"what-if-{len(bought)}"
            ).commitment
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            not_sold.append(error.message)
            continue
        bought.append(dataclasses.replace(one, start_second=window.start, end_second=window.stop))
    if kinds and not bought:
        raise PodyardError(Code.NOT_FOUND, "; ".join(not_sold))
    return bought, not_sold
