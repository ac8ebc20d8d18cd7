"""Instances as tables show them: with price, cost and group. An instance of a slice of several has
its share of what the slice costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.money import Amount
from podyard.control.billing import usages
from podyard.control.billing.usages import NodeUsage
from podyard.control.compute.instances import views
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.instances.group import GroupRow
from podyard.domain.instances.instance import (
    Instance,
    InstanceSpec,
    ProvisioningModel,
    Scheduling,
)
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal
from podyard.pricing.current_card import default_rate_card
from podyard.web.kit import forms
from podyard.web.kit.places import resource_url

MODEL_WORDS: Mapping[ProvisioningModel, str] = {
    ProvisioningModel.STANDARD: "on demand",
    ProvisioningModel.SPOT: "spot",
    ProvisioningModel.FLEX_START: "flex-start",
    ProvisioningModel.RESERVATION_BOUND: "reservation",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ListedInstance:
    """`price`: nanos per hour; None: why there is none stands in `no_price`. `usage`: of the whole
    slice; None: the caller may not see the bill, or nothing was metered yet. `group`: None where
    the instance is in none, or its group is gone."""

    instance: Instance
    spec: InstanceSpec
    price: int | None
    no_price: str
    usage: NodeUsage | None
    group: GroupRow | None

    @property
    def url(self) -> str:
        return resource_url(self.instance.row.path)

    @property
    def group_url(self) -> str:
        return resource_url(self.group.path) if self.group else ""

    @property
    def chips(self) -> int:
        return self.spec.machine.chips

    @property
    def model(self) -> str:
        return model_words(self.spec.scheduling)

    @property
    def share(self) -> NodeUsage | None:
        """The same, with the instance's part of the amounts."""
        if self.usage is None:
            return None
        amount = Amount(self.usage.amount.parts // self.instance.node.host_count)
        return dataclasses.replace(self.usage, amount=amount)


def model_words(scheduling: Scheduling) -> str:
    """The way to buy an instance, as people say it."""
    return "preemptible" if scheduling.preemptible else MODEL_WORDS[scheduling.model]


def rows_of(
    uow: UnitOfWork, caller: Principal, project: str, instances: Sequence[Instance]
) -> list[ListedInstance]:
    groups = views.groups_of(uow, instances)
    usage_by_node = _usage(uow, caller, project, instances)
    rows = []
    for one in instances:
        nanos, why = _price(uow, one.node)
        rows.append(
            ListedInstance(
                one,
                one.spec,
                nanos,
                why,
                usage_by_node.get(one.node.node_key),
                groups.get(one.row.group_key or ""),
            )
        )
    return rows


def _usage(
    uow: UnitOfWork, caller: Principal, project: str, instances: Sequence[Instance]
) -> Mapping[str, NodeUsage]:
    if not instances or not caller.may("podyard.billing.view", project):
        return {}
    keys = sorted({one.node.node_key for one in instances})
    usage = usages.usage(uow, default_rate_card(), caller, project, resource_keys=keys)
    return {node.resource_key: node for node in usage.nodes}


def _price(uow: UnitOfWork, node: NodeRecord) -> tuple[int | None, str]:
    price, why = forms.price_of(node.accelerator_type, node.zone, str(node.usage_class), uow.now)
    return price.total_nanos_per_hour // node.host_count if price else None, why
