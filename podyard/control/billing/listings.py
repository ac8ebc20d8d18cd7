"""What exports say of nodes: their facts, and the SKUs of Google's catalogue that sell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from podyard.control.billing import catalogue
from podyard.control.billing.catalogue import ListedSku
from podyard.db import cost_dimensions
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.usage import BilledNode, node_key_of
from podyard.hardware.accelerator_types import parse
from podyard.pricing.bill import resource_of
from podyard.pricing.export import Listed, ResourceFacts
from podyard.pricing.sku import RateCard


def facts_of(
    uow: UnitOfWork, card: RateCard, projects: Sequence[str], nodes: Mapping[str, BilledNode], wanted: Set[str]
) -> dict[str, ResourceFacts]:
    """Of the nodes that are wanted, by key."""
    exported = {key: more for project in projects for key, more in cost_dimensions.exported_nodes(uow, project).items()}
    by_text = by_text_of(card)
    listed: dict[tuple[str, str, str, bool], Listed] = {}  # many nodes are of one kind
    found = {}
    for key in sorted(wanted & nodes.keys()):
        node, more = nodes[key], exported.get(node_key_of(key))
        kind = (node.accelerator_type, node.zone, str(node.usage_class), node.is_host)
        if kind not in listed:
            sku = resource_of(card, node).sku
            listed[kind] = listing_of(by_text, node, "" if sku is None else sku.sku_id)
        number, reservation = (0, None) if more is None else (more.number, more.reservation)
        found[key] = ResourceFacts(node, number, reservation, listed[kind])
    return found


def listing_of(by_text: Mapping[tuple[str, str], ListedSku], node: BilledNode, sku_id: str) -> Listed:
    """The SKU of Google's catalogue that sells such a node; where it lists none, our own."""
    if node.is_host:
        service = catalogue.COMPUTE_ENGINE
        text = f"Host VM of {node.accelerator_type}"
        return Listed(service.service_id, service.display_name, sku_id, text)
    kind = parse(node.accelerator_type)
    generation, chips = kind.generation, kind.chip_count
    region = region_of(node.zone)
    name = generation.name
    words = [f"Tpu-{name}", f"Tpu-{name} Pod"]
    wanted = [
        f"TPU slice {node.accelerator_type}",
        *(words if chips <= catalogue.DEVICE_CHIPS else reversed(words)),
        f"TpuV{name.removeprefix('v')}",
    ]
    for text in wanted:
        found = by_text.get((_SOLD_AS.get(str(node.usage_class), "") + text, region))
        if found is not None:
            return Listed(found.service.service_id, found.service.display_name, found.sku_id, found.description)
    return Listed(catalogue.CLOUD_TPU.service_id, catalogue.CLOUD_TPU.display_name, sku_id, node.accelerator_type)


# How the descriptions of the catalogue begin.
_SOLD_AS = {"spot": "Spot Preemptible ", "preemptible": "Preemptible "}


def by_text_of(card: RateCard) -> Mapping[tuple[str, str], ListedSku]:
    """The catalogue's SKUs by the first words of their description and their region; commitments are not among them."""
    return {
        (sku.description.partition(" running in ")[0], sku.region): sku
        for service in catalogue.SERVICES
        for sku in catalogue.skus_of(card, service)
        if not sku.usage_type.startswith("Commit")
    }
