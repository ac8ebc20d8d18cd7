"""Nodes in exports: their facts, and the SKUs of Google's catalogue that sell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from podyard.control.billing import catalogue
from podyard.db.billing import cost_dimensions
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.usage import BilledKind, BilledResource, node_key_of
from podyard.hardware.machine_types import billed_kind
from podyard.pricing.bill import resource_of
from podyard.pricing.export import Listed, ResourceFacts
from podyard.pricing.sku import RateCard, row_usage


def facts_of(
    uow: UnitOfWork,
    card: RateCard,
    projects: Sequence[str],
    nodes: Mapping[str, BilledResource],
    wanted: Set[str],
) -> dict[str, ResourceFacts]:
    """Of the nodes that are wanted, by key."""
    exported = {
        key: more
        for project in projects
        for key, more in cost_dimensions.exported_nodes(uow, project).items()
    }
    listed: dict[tuple[str, str, str, BilledKind], Listed] = {}  # many nodes are of one kind
    found = {}
    for key in sorted(wanted & nodes.keys()):
        node, more = nodes[key], exported.get(node_key_of(key))
        kind = (node.type, node.zone, str(node.usage_class), node.kind)
        if kind not in listed:
            sku = resource_of(card, node).sku
            listed[kind] = listing_of(card, node, "" if sku is None else sku.sku_id)
        number, reservation = (0, None) if more is None else (more.number, more.reservation)
        found[key] = ResourceFacts(node, number, reservation, listed[kind])
    return found


def listing_of(card: RateCard, node: BilledResource, sku_id: str) -> Listed:
    """The SKU of Google's catalogue that sells such a node; where it lists none, our own."""
    if node.kind is not BilledKind.NODE:
        of_bucket = node.kind in (BilledKind.BUCKET, BilledKind.OPERATION)
        service = catalogue.CLOUD_STORAGE if of_bucket else catalogue.COMPUTE_ENGINE
        text = _WORDS[node.kind].format(node.type)
        return Listed(service.service_id, service.display_name, sku_id, text)
    kind = billed_kind(node.type)
    generation, chips = kind.generation, kind.chip_count
    if not chips:
        service = catalogue.COMPUTE_ENGINE
        text = f"Instance of {node.type}"
        return Listed(service.service_id, service.display_name, sku_id, text)
    usage = row_usage(node.usage_class)
    sold = catalogue.tpus_of(card, generation, node.region, usage)
    by_words = {
        sku.description.removeprefix(_SOLD_AS.get(usage, "")).partition(" running in ")[0]: sku
        for sku in sold
    }
    name = generation.name
    words = [f"Tpu-{name}", f"Tpu-{name} Pod"]
    wanted = [
        f"TPU slice {node.type}",
        *(words if chips <= catalogue.DEVICE_CHIPS else reversed(words)),
        f"TpuV{name.removeprefix('v')}",
    ]
    for text in wanted:
        found = by_words.get(text)
        if found is not None:
            return Listed(
                found.service.service_id,
                found.service.display_name,
                found.sku_id,
                found.description,
            )
    return Listed(
        catalogue.CLOUD_TPU.service_id, catalogue.CLOUD_TPU.display_name, sku_id, node.type
    )


_WORDS = {
    BilledKind.HOST: "Host VM of {}",
    BilledKind.DISK: "Capacity of {}",
    BilledKind.BUCKET: "{} storage",
    BilledKind.OPERATION: "Operations, {}",
}
# How the descriptions of the catalogue begin.
_SOLD_AS = {"spot": "Spot Preemptible ", "preemptible": "Preemptible "}
