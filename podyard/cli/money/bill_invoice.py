"""`podyard bill invoice|close|account|credit|costs|what-if`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.base.money import (
    amount_text,
    money_text,
    nanos_from_decimal_text,
    price_text,
    quantity_text,
    rate_text,
    without_zeros,
)
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, output_option, pairs, project_options
from podyard.cli.kit.output import emit, say
from podyard.cli.money.credit_note import end_credit
from podyard.domain.invoice import hosts_text
from podyard.domain.usage import PriceUnit

_LINES = {
    "LINE": "id",
    "QUANTITY": "shown",
    "UNIT_PRICE": "unitPrice",
    "USD": "exactUsd|usd",
    "AMOUNT": "amount",
}
_INVOICES = {
    "MONTH": "month",
    "NUMBER": "number",
    "ISSUED": "issueTime",
    "CURRENCY": "currency",
    "TOTAL": "total",
}
_RECORDS = {
    "RESOURCE": "resource",
    "START": "startTime",
    "END": "endTime",
    "SECONDS": "seconds",
    "UNITS": "units",
    "AMOUNT": "amount|usd",
}
_SUMS = {"ITEM": "item", "AMOUNT": "amount"}
_ITEMS = {"NODE": "node", "LINE": "line", "QUANTITY": "shown", "USD": "exactUsd|usd"}
_CREDITS = {
    "CREDIT": "credit",
    "AMOUNT": "amount|usd",
    "FROM": "fromMonth",
    "UNTIL": "untilMonth",
    "REASON": "reason",
}
_ACCOUNT = {
    "PROJECT": "project",
    "TIME_ZONE": "timeZone",
    "CURRENCY": "currency",
    "TAX": "tax",
    "GRACE_HOURS": "graceHours",
    "NEXT_MONTH": "nextMonth",
    "CLOSES": "closesAt",
    "HELD_BECAUSE": "heldBecause",
    "RATES": "exchangeRates",
    "PAYS_FOR": "projects",
}
_INFO = {"PROJECT": "project", "PAID_BY": "paidBy", "SINCE": "since"}
_JOBS = {
    "JOB": "id",
    "STATE": "state",
    "ATTEMPTS": "tries",
    "USED": "seconds|seconds",
    "COST": "amount|usd",
    "PER_STEP": "perStep|usd",
    "PER_EPOCH": "perEpoch|usd",
    "PER_1000": "per1000Examples|usd",
    "ON_A_REAL_SLICE": "estimate|usd",
    "LOST": "lost|usd",
    "SAVED": "saved|usd",
}
_NODES = {
    "NODE": "id",
    "TYPE": "acceleratorType",
    "USAGE": "usage",
    "USED": "seconds|seconds",
    "COST": "amount|usd",
    "IDLE": "idle.seconds|seconds",
    "IDLE_COST": "idle.amount|usd",
}


@click.command()
@click.argument("month", required=False)
@project_options
@click.option("--list", "is_list", is_flag=True, help="List the issued invoices instead.")
@output_option
def invoice(
    data: str | None, project: str | None, month: str | None, is_list: bool, output: str
) -> None:
    """Show the invoice of MONTH (2026-03; default: the current month), issued or as a draft."""
    client = client_of(data, project)
    if is_list:
        if month is not None:
            raise click.UsageError("--list shows all invoices: leave MONTH out")
        listed = client.call("GET", f"{client.project_path()}/invoices")["invoices"]
        if output == "table":
            listed = [
                {**one, "total": amount_text(one["total"], one["currency"])} for one in listed
            ]
        emit(listed, output, _INVOICES)
        return
    found = _find_issued(client, month) or client.call(
        "GET", f"{client.project_path()}/invoices:preview", month=month
    )
    _show(found, output)


def _find_issued(client: Client, month: str | None) -> dict[str, Any] | None:
    if month is None:
        return None
    try:
        return client.call("GET", f"{client.project_path()}/invoices/{quote(month, safe='')}")
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None


@click.command()
@click.argument("month")
@click.argument("line")
@project_options
@output_option
def explain(data: str | None, project: str | None, month: str, line: str, output: str) -> None:
    """Show the usage that a line of the invoice of MONTH is made of.

    LINE is the id of the line, as `podyard bill invoice MONTH` shows it.
    """
    client = client_of(data, project)
    path = f"{client.project_path()}/invoices/{quote(month, safe='')}:explain"
    found, records = client.call("GET", path, line=line), []
    page = found
    while True:
        records += page["records"]
        if "nextPageToken" not in page:
            break
        page = client.call("GET", path, line=line, pageToken=page["nextPageToken"])
    if output != "table":
        found.pop("nextPageToken", None)
        emit({**found, "records": records}, output)
        return
    emit(records, output, _RECORDS)
    quantity = quantity_text(found["quantity"], PriceUnit(found["unit"]).noun)
    price, amount = (
        price_text(nanos_from_decimal_text(found["unitPrice"])),
        money_text(found["amount"]),
    )
    click.echo(f"{quantity} at {price} cost {amount} (exactly ${without_zeros(found['amount'])})")


@click.command()
@click.argument("month")
@project_options
@click.option(
    "--hold-suspense",
    is_flag=True,
    help=(
        "Issue the invoice without usage that has no price. It is billed later, once it "
        "has a price."
    ),
)
@output_option
def close(
    data: str | None, project: str | None, month: str, hold_suspense: bool, output: str
) -> None:
    """Issue the invoice of MONTH, which must have ended. Podyard also does this automatically."""
    client = client_of(data, project)
    path = f"{client.project_path()}/invoices/{quote(month, safe='')}:close"
    _show(client.call("POST", path, {"holdSuspense": hold_suspense}), output)


def _show(found: dict[str, Any], output: str) -> None:
    if output != "table":
        emit(found, output)
    elif "invoice" not in found:
        say(f"{found['month']}: nothing to invoice")
    else:
        document = found["invoice"]
        emit([_line(line, document["currency"]) for line in document["lines"]], output, _LINES)
        click.echo()
        emit(_sums(document), output, _SUMS)
        for one in document["adjustments"]:
            if one.get("items"):
                click.echo(
                    f"\nadjustment of {one['correctsMonth']}, before tax, credits and rounding"
                )
                rows = [
                    {**i, "node": i["name"].rpartition("/")[2], "shown": _quantity(i)}
                    for i in one["items"]
                ]
                emit(rows, output, _ITEMS)
        for reason in found.get(
            "held", [f"{one['seconds']} s of {one['name']}" for one in document["held"]]
        ):
            say(f"not billed, since it has no price: {reason}")
        if document["currency"] != "USD":
            click.echo(rate_text(document["exchangeRate"], document["currency"], document["month"]))
        click.echo(
            f"{document['number']} {found['state']} in {document['currency']} as of "
            f"{document['asOf']}"
        )


def _line(line: dict[str, Any], currency: str) -> dict[str, Any]:
    price = price_text(nanos_from_decimal_text(line["unitPrice"]))
    return {
        **line,
        "shown": _quantity(line),
        "unitPrice": price,
        "amount": amount_text(line["amount"], currency),
    }


def _quantity(line: dict[str, Any]) -> str:
    """Invoices that were issued by older versions have no quantities."""
    if "quantity" not in line:
        return "-"
    unit = PriceUnit(line["unit"])
    hosts = hosts_text(line.get("hostsIncluded"), line["quantity"], unit)
    return ", ".join(filter(None, (quantity_text(line["quantity"], unit.noun), hosts)))


def _sums(document: dict[str, Any]) -> list[dict[str, str]]:
    credits = [(f"credit {item['credit']}", item["amount"]) for item in document["credits"]]
    corrections = [
        (f"adjustment of {item['correctsMonth']}", item["amount"])
        for item in document["adjustments"]
    ]
    names = (("rounding error", "roundingError"), ("subtotal", "subtotal"), ("tax", "tax"))
    rows = [
        *credits,
        *((text, document[key]) for text, key in names),
        *corrections,
        ("total", document["total"]),
    ]
    return [
        {"item": text, "amount": amount_text(amount, document["currency"])} for text, amount in rows
    ]


@click.group(cls=CommandGroup)
def account() -> None:
    """Manage the billing account: time zone, currency, tax."""


@account.command(name="show")
@project_options
@output_option
def show_account(data: str | None, project: str | None, output: str) -> None:
    """Show the billing account of the project."""
    client = client_of(data, project)
    emit(client.call("GET", f"{client.project_path()}/billingAccount"), output, _ACCOUNT)


@account.command(name="set")
@project_options
@click.option(
    "--time-zone", metavar="ZONE", help="Time zone of the months, for example America/Los_Angeles."
)
@click.option("--currency", metavar="CODE", help="Currency of invoices, for example EUR.")
@click.option("--decimals", type=int, help="Number of decimals of the currency.")
@click.option("--tax", metavar="SHARE", help="Tax rate, for example 0.19.")
@click.option("--grace-hours", type=int, help="Hours between the end of a month and its invoice.")
@click.option(
    "--rates", metavar="MONTH=RATE,...", help="Exchange rates: units of the currency per US dollar."
)
@output_option
def set_account(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Change the billing account. Time zone, currency and tax cannot change after the first
    invoice."""
    client = client_of(data, project)
    fields = {
        "timeZone": given["time_zone"],
        "currency": given["currency"],
        "decimals": given["decimals"],
        "tax": given["tax"],
        "graceHours": given["grace_hours"],
        "exchangeRates": dict(pairs(given["rates"], "--rates")) or None,
    }
    body = {name: value for name, value in fields.items() if value is not None}
    if not body:
        raise click.UsageError("specify at least one setting, for example --currency EUR")
    emit(client.call("PATCH", f"{client.project_path()}/billingAccount", body), output, _ACCOUNT)


@account.command(name="link")
@click.argument("payer", metavar="PROJECT")
@project_options
@output_option
def link_account(data: str | None, project: str | None, payer: str, output: str) -> None:
    """Let the billing account of PROJECT pay for this project, from now on.

    Usage before that stays with the account that paid for it.
    """
    _link(client_of(data, project), payer, output)


@account.command(name="unlink")
@project_options
@output_option
def unlink_account(data: str | None, project: str | None, output: str) -> None:
    """Let the project's own billing account pay for it again, from now on."""
    client = client_of(data, project)
    _link(client, client.target.project, output)


def _link(client: Client, payer: str, output: str) -> None:
    body = {"paidBy": f"projects/{payer.removeprefix('projects/')}"}
    emit(client.call("PUT", f"{client.project_path()}/billingInfo", body), output, _INFO)


@click.group(cls=CommandGroup)
def credit() -> None:
    """Manage credits, which are deducted from invoices."""


@credit.command(name="add")
@project_options
@click.option("--amount", required=True, metavar="USD", help="Amount of the credit.")
@click.option(
    "--from-month",
    metavar="MONTH",
    help="First month of the credit (default: the first open month).",
)
@click.option("--until-month", required=True, metavar="MONTH", help="Last month of the credit.")
@click.option("--reason", default="", help="Reason, shown on the invoice.")
@output_option
def add_credit(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Add a credit to the project."""
    client = client_of(data, project)
    body = {
        "amount": given["amount"],
        "untilMonth": given["until_month"],
        "reason": given["reason"],
    }
    if given["from_month"] is not None:
        body["fromMonth"] = given["from_month"]
    emit(client.call("POST", f"{client.project_path()}/credits", body), output, _CREDITS)


@credit.command(name="list")
@project_options
@lists(_CREDITS)
def list_credits(data: str | None, project: str | None) -> Iterable[Item]:
    """List credits, sorted by expiry."""
    client = client_of(data, project)
    found: list[Item] = client.call("GET", f"{client.project_path()}/credits")["credits"]
    return found


credit.add_command(end_credit)


@click.command()
@project_options
@click.option("--month", metavar="MONTH", help="Only this month (default: all time).")
@output_option
def costs(data: str | None, project: str | None, month: str | None, output: str) -> None:
    """Show the cost of each job with all its attempts, and of idle nodes."""
    client = client_of(data, project)
    found = client.call("GET", f"{client.project_path()}/costs", month=month)
    if output != "table":
        emit(found, output)
        return
    jobs = [
        {**job, "id": _last(job["name"]), "tries": len(job["attempts"])} for job in found["jobs"]
    ]
    on_machines = (
        {"ON_YOUR_MACHINES": "machine.cost|usd"} if any("machine" in job for job in jobs) else {}
    )
    emit(jobs, output, _JOBS | on_machines)
    click.echo()
    emit([{**node, "id": _last(node["name"])} for node in found["nodes"]], output, _NODES)
    commitments, storage, total = (
        money_text(found[name]) for name in ("commitments", "storage", "total")
    )
    click.echo(
        f"Commitments {commitments}, disks and buckets {storage}, total {total} as of "
        f"{found['asOf']}"
    )


def _last(name: str) -> str:
    return name.rpartition("/")[2]


_WHAT_IF = {
    "TYPE": "type",
    "REGION": "region",
    "CLASS": "usage",
    "HOURS": "hours",
    "PER_HOUR": "price",
    "ACTUAL": "actual|usd",
    "CHANGED": "changed|usd",
    "DIFFERENCE": "difference|usd",
}


def _what_if_row(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line with what changed as `BEFORE > AFTER`."""
    before, after = line.get("before"), line.get("after")
    if before is None or after is None:
        return {**line, "type": "commitments, storage"}

    def both(name: str, show: Callable[[str], str] = str) -> str:
        one, other = (show(terms[name]) if name in terms else "-" for terms in (before, after))
        return one if one == other else f"{one} > {other}"

    return {
        **line,
        "type": both("acceleratorType"),
        "region": both("region"),
        "usage": both("usage"),
        "hours": f"{line.get('seconds', 0) / 3600:,.1f}",
        "price": both("pricePerHour", money_text),
    }


@click.command(name="what-if")
@project_options
@click.option("--month", metavar="MONTH", help="Month of the usage (default: the current month).")
@click.option(
    "--type",
    "accelerator_type",
    metavar="TYPE",
    help="Use this accelerator type for all nodes, for example v3-8.",
)
@click.option(
    "--of-type",
    metavar="TYPE",
    help="Change only nodes of this accelerator type (default: all nodes).",
)
@click.option(
    "--region", metavar="REGION", help="Use this region for all nodes, for example europe-west4."
)
@click.option(
    "--usage",
    metavar="USAGE",
    help="Use this class for all nodes: on-demand, spot, preemptible or reserved.",
)
@click.option("--commitment-years", type=int, help="Add a commitment of 1 or 3 years.")
@click.option(
    "--commitment-quantity",
    type=int,
    default=1,
    show_default=True,
    help="Number of nodes that the commitment covers.",
)
@output_option
def what_if(data: str | None, project: str | None, output: str, **given: Any) -> None:
    """Show what this usage would have cost with other terms.

    The number of seconds stays the same, even if a faster accelerator type would need fewer.
    """
    client = client_of(data, project)
    fields = {
        "month": given["month"],
        "acceleratorType": given["accelerator_type"],
        "region": given["region"],
        "usage": given["usage"],
        "commitmentYears": given["commitment_years"],
        "commitmentQuantity": given["commitment_quantity"],
        "ofType": given.get("of_type"),
    }
    body = {name: value for name, value in fields.items() if value is not None}
    found = client.call("POST", f"{client.project_path()}/costs:whatIf", body)
    if output != "table":
        emit(found, output)
    else:
        emit(
            [
                *map(_what_if_row, found.get("lines", ())),
                {**found, "type": f"all of {found.get('month')}"},
            ],
            output,
            _WHAT_IF,
        )
        for held in found["held"]:
            say(f"not in it: {held['node']}: {held['reason']}")
        for reason in found["notSold"]:
            say(f"no commitment there: {reason}")


COMMANDS = (invoice, explain, close, account, credit, costs, what_if)
