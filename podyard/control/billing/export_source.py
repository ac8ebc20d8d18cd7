"""What an export is made of, read from the database: the invoice's document, its bill, and facts of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, bills, catalogue, commitments, invoices
from podyard.control.billing.catalogue import ListedSku
from podyard.control.billing.invoice_document import InvoiceDocument, from_json
from podyard.db import commitments as commitment_rows
from podyard.db import cost_dimensions
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.fleet import region_of
from podyard.domain.invoice import IssuedInvoice, JobSpan
from podyard.domain.principal import PLATFORM
from podyard.domain.usage import BilledNode, node_key_of
from podyard.hardware.accelerator_types import parse
from podyard.pricing import attribution
from podyard.pricing.attribution import Owned
from podyard.pricing.bill import Bill, extend_to_hosts, resource_of, resources_of
from podyard.pricing.export import Committed, ExportSource, Listed, ResourceFacts, Statement
from podyard.pricing.sku import RateCard


def source(uow: UnitOfWork, card: RateCard, project: str, month: str, *, by_job: bool) -> ExportSource | None:
    """One month to export: as it was issued, or, of an open month, as its invoice is so far. None: there is nothing to
    invoice in it. The caller has asked for permission."""
    account = accounts.of(uow, project)
    if month < account.next_month:
        issued = _find_issued(uow, project, month)
        return None if issued is None else _source_of_issued(uow, card, account, issued, by_job)
    found = invoices.preview(uow, card, PLATFORM, project, month)
    if found.document is None:
        return None
    return _source(uow, card, account, found.document, found.bill, by_job, None)


def _find_issued(uow: UnitOfWork, project: str, month: str) -> IssuedInvoice | None:
    try:
        return invoices.get(uow, PLATFORM, project, month)
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None


def _source_of_issued(
    uow: UnitOfWork, card: RateCard, account: Account, issued: IssuedInvoice, by_job: bool
) -> ExportSource:
    """From the events and prices that the invoice knew of. That its rows are those of the document is checked when they
    are made."""
    then = bills.card_of_then(uow, card, issued.issued_at)
    resources = resources_of(then, bills.billed(uow, then, account.project))
    terms = bills.terms_of(uow, account)
    bill = bills.compute(uow, account.project, resources, terms, issued.as_of, issued.last_event_seq)
    return _source(uow, card, account, from_json(issued.document), bill, by_job, issued.issued_at)


def _source(
    uow: UnitOfWork,
    card: RateCard,
    account: Account,
    document: InvoiceDocument,
    bill: Bill,
    by_job: bool,
    issued_at: PlatformTime | None,
) -> ExportSource:
    return ExportSource(
        statement=_statement(account, document, issued_at is not None),
        charges=bill.charges,
        commitments=_commitments(uow, card, account.project),
        resources=_facts(uow, card, account.project),
        owners=_owners(uow, card, account.project, bill.as_of) if by_job else None,
        exported_at=uow.now if issued_at is None else issued_at,
    )


def _statement(account: Account, document: InvoiceDocument, issued: bool) -> Statement:
    decimals = document.decimals
    return Statement(
        number=document.number,
        project=account.project,
        month=document.month,
        seconds=months.seconds_of(document.month, document.time_zone),
        time_zone=document.time_zone,
        currency=document.currency,
        decimals=decimals,
        exchange=Fraction(document.exchange_rate),
        issued=issued,
        as_of=PlatformTime.from_rfc3339(document.as_of),
        lines={line.id: int(line.parts) for line in document.lines},
        credits=[(line.credit, int(line.parts)) for line in document.credits],
        tax=_minor(document.tax, decimals),
        adjustments=[(one.corrects_month, _minor(one.amount, decimals)) for one in document.adjustments],
        total=_minor(document.total, decimals),
    )


def _minor(text: str, decimals: int) -> int:
    return int(Decimal(text) * 10**decimals)


def _commitments(uow: UnitOfWork, card: RateCard, project: str) -> dict[str, Committed]:
    found = {}
    for purchase in commitment_rows.of_project(uow, project):
        one = purchase.commitment
        sku = card.skus.get(one.sku_id)
        found[one.commitment_id] = Committed(
            billed=commitments.to_billed(purchase),
            bought_nanos=one.price.nanos,
            upfront=purchase.upfront is not None,
            region="" if sku is None else sku.region,
        )
    return found


def _facts(uow: UnitOfWork, card: RateCard, project: str) -> dict[str, ResourceFacts]:
    exported = cost_dimensions.exported_nodes(uow, project)
    by_text = by_text_of(card)
    found = {}
    for key, node in bills.billed(uow, card, project).items():
        more = exported.get(node_key_of(key))
        resource = resource_of(card, node)
        found[key] = ResourceFacts(
            resource_id=key,
            name=node.name,
            number=0 if more is None else more.number,
            zone=node.zone,
            region=region_of(node.zone),
            accelerator_type=node.accelerator_type,
            usage=str(node.usage_class),
            labels={} if more is None else more.labels,
            quantity=resource.quantity,
            reservation=None if more is None else more.reservation,
            listed=listing_of(by_text, node, "" if resource.sku is None else resource.sku.sku_id),
        )
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


def _owners(uow: UnitOfWork, card: RateCard, project: str, as_of: PlatformTime) -> dict[str, Sequence[Owned]]:
    """Whose the seconds of each node and of its hosts were, by the jobs' names."""
    resources = resources_of(card, bills.billed(uow, card, project))
    names = cost_dimensions.job_names(uow, project)
    spans: dict[str, list[JobSpan]] = {}
    for span in extend_to_hosts(resources, cost_dimensions.job_spans(uow, project)):
        if span.start < as_of:
            spans.setdefault(span.resource_id, []).append(span)
    return {key: list(_with_names(attribution.ownership(found, as_of), names)) for key, found in sorted(spans.items())}


def _with_names(found: Sequence[Owned], names: Mapping[str, str]) -> Iterator[Owned]:
    return (Owned(owned.seconds, names.get(owned.job_id, owned.job_id)) for owned in found)
