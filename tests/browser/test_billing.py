"""The billing pages in a real Chromium, over a year that is walked on a virtual clock: figures that
add up to the bill also where the clocks change, probes of every page, and what 50,000 rows take."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from podyard.api.app import create_app
from podyard.base.money import amount_text, money_text
from podyard.domain.fleet_file import instant_fleet
from podyard.settings import from_environment
from podyard.testing.server import serving
from podyard.web.billing import invoices as billing_invoices
from podyard.web.front.pages import router as console
from tests.browser.conftest import Browser, open_browser
from tests.browser.test_console import CONTRAST_PROBE, LABELS_PROBE
from tests.unit.control.gang import Gang
from tests.waiting import patient
from tests.yard import ZONE, Yard, open_yard

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

HERE = "/podyard/v1/projects/demo"
BILLING = "/console/demo/billing"
EVIL = "<img src=x onerror=document.body.dataset.hit=1>"
SIZE_MAX = 60_000
# What a page is read by: headings in order, one h1, tables and their headers, pictures with texts,
# ids that are unique.
PAGE_PROBE = """
const bad = [];
const all = (selector) => [...document.querySelectorAll(selector)];
if (all('h1').length !== 1) bad.push('h1');
for (const table of all('table')) if (!table.querySelector('thead th')) bad.push('a table without headers');
for (const cell of all('th')) if (!cell.scope) bad.push('th without scope ' + cell.outerHTML);
for (const row of all('tbody tr')) if (!row.querySelector('th[scope=row]')) bad.push('a row without a header');
for (const box of all('.scroll')) if (box.tabIndex !== 0 || !box.ariaLabel) bad.push('a table that keys cannot scroll');
for (const picture of all('svg[role=img]'))
  for (const id of picture.getAttribute('aria-labelledby').split(' '))
    if (!document.getElementById(id)?.textContent) bad.push('a picture without a text');
for (const bar of all('progress')) if (!bar.ariaLabel) bad.push('a bar without a name');
for (const link of all('a, button')) if (!link.textContent.trim() && !link.ariaLabel) bad.push('a link without a name');
for (const element of all('[tabindex]')) if (element.tabIndex > 0) bad.push('a separate order');
const ids = all('[id]').map((element) => element.id);
if (new Set(ids).size !== ids.length) bad.push('an id twice');
return bad;"""  # noqa: E501


class Console(Yard):
    """A yard with the console's pages."""

    def to(self, moment: str) -> None:
        """Walks the virtual clock there."""
        self.ok("POST", "/podyard/v1/clock:advance", {"time": moment})
        for _ in range(1000):
            self.loop.round()
            if self.ok("GET", "/podyard/v1/clock")["platformTime"] == moment:
                return
        raise AssertionError("the clock does not arrive")

    def page(self, path: str) -> httpx.Response:
        cookies = {"podyard_session": self.token}
        with httpx.Client(
            base_url=self.url, cookies=cookies, trust_env=False, timeout=patient(60)
        ) as visitor:
            return visitor.get(f"{BILLING}{path}")

    def table(self, query: str) -> list[list[str]]:
        """The explorer's CSV."""
        answer = self.page(f"/explorer?{query}&format=csv")
        assert answer.status_code == 200, answer.text
        return list(csv.reader(io.StringIO(answer.text)))


@contextlib.contextmanager
def open_console(data: Path) -> Iterator[Console]:
    settings = from_environment({"PODYARD_DATA": str(data), "PODYARD_CLOCK": "virtual"})
    with open_yard(data, clock_mode="virtual") as yard:
        app = create_app(settings, yard.database, instant_fleet(), yard.clock, lambda: (console,))
        with serving(app) as url:
            found = Console(url, yard.database, yard.loop, yard.clock, data)
            try:
                yield found
            finally:
                found.close()


def live(yard: Console) -> None:
    """A year of an account in Los Angeles, whose clocks change on 8 March and 1 November."""
    yard.ok("PATCH", f"{HERE}/billingAccount", {"timeZone": "America/Los_Angeles"})
    yard.create("trainer", labels={"team": "vision"})
    yard.create("big", "v2-32", "us-central1-a", labels={"team": "speech"})
    yard.create("spotty", schedulingConfig={"spot": True})
    _job(yard)
    yard.ok(
        "PUT",
        f"{HERE}/budgets/year",
        {"amount": "9000", "thresholds": ["0.5", "1"], "period": "total"},
    )
    yard.ok("PUT", f"{HERE}/budgets/vision", {"amount": "5000", "scope": "label:team=vision"})
    yard.to("2026-03-08T09:59:17Z")
    yard.ok("POST", f"{HERE}/locations/{ZONE}/nodes/spotty:preempt", {})
    yard.ok("DELETE", f"{yard.nodes('us-central1-a')}/big")
    yard.step()
    yard.to("2026-03-08T10:00:43Z")
    yard.create("big", "v2-32", "us-central1-a", labels={"team": "speech"})
    yard.to("2026-03-09T03:07:11Z")
    yard.ok("DELETE", f"{yard.nodes('us-central1-a')}/big")
    yard.step()
    yard.ok(
        "POST",
        f"{HERE}/commitments",
        {"acceleratorType": "v2-32", "location": "us-central1-a", "years": 1},
    )
    yard.ok(
        "POST", f"{HERE}/credits", {"amount": "12.345", "untilMonth": "2026-12", "reason": "a gift"}
    )
    yard.to("2026-10-31T22:13:07Z")
    for name in ("lite", "more"):
        fields = {"runtimeVersion": "v2-alpha-tpuv5-lite", "labels": {"team": "vision"}}
        yard.create(name, "v5litepod-4", "us-central1-a", **fields)
    yard.create("big", "v2-32", "us-central1-a", labels={"team": "speech"})
    yard.create("bigger", "v2-32", "us-central1-a")
    yard.to("2026-12-03T12:00:00Z")


def _job(yard: Console) -> None:
    """Two attempts on the spot node: three of the first one's eight steps are done again."""
    gang = Gang(yard)
    body = {
        "recipe": "digits-cnn",
        "node": "spotty",
        "steps": 20,
        "globalBatch": 64,
        "checkpointEverySteps": 5,
    }
    yard.ok("POST", f"{yard.jobs()}?jobId=digits", body)
    yard.step()
    (first,) = gang.sync()
    gang.points(first, 1, 8)
    gang.report(first, checkpoints=[{"step": 5, "name": "c5", "sha256": "0" * 64}])
    yard.to("2026-03-01T00:40:00Z")
    gang.report(first, state="FAILED", reason="it fell over")
    gang.exit_all()
    yard.step()
    (second,) = gang.sync()
    gang.points(second, 6, 20)
    yard.to("2026-03-01T01:30:00Z")
    gang.report(second, state="SUCCEEDED")
    gang.exit_all()
    yard.step()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with open_console(Path(tmp_path_factory.mktemp("billing"))) as yard:
        live(yard)
        yield yard


@pytest.fixture(scope="module")
def browser(lived: Console) -> Iterator[Browser]:
    with open_browser(lived) as found:  # type: ignore[arg-type]
        yield found


def money(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


def revenue(yard: Console, month: str) -> Decimal:
    """Return the ledger's bookings of the month's use, net of credits, in exact US dollars."""
    parts = 0
    for booked in yard.ok("GET", f"{HERE}/ledger?pageSize=1000")["transactions"]:
        if booked["month"] != month or booked["source"].startswith("commitment/"):
            continue
        for entry in booked["entries"]:
            if entry["account"].startswith(("revenue:", "credit:")):
                parts -= int(entry["parts"])
    return Decimal(parts) / (2_628_000 * 10**9)


@pytest.mark.parametrize(
    ("month", "last", "hours"),
    [("2026-03", 31, {"2026-03-08": "23 h"}), ("2026-11", 30, {"2026-11-01": "25 h"})],
)
@pytest.mark.parametrize("group", ["type", "node"])
def test_chart_table_csv_and_ledger_say_the_same_where_the_clocks_change(
    browser: Browser, lived: Console, month: str, last: int, hours: dict[str, str], group: str
) -> None:
    query = f"from={month}-01&to={month}-{last}&group={group}"
    browser.open(f"{BILLING}/explorer?{query}")
    total = money(browser.text("#total"))
    browser.script("document.querySelector('details.data').open = true")
    bars = [(row.find_element(By.TAG_NAME, "th").text, row.find_element(By.TAG_NAME, "td").text)
            for row in browser.all("#bars tbody tr")]  # fmt: skip
    assert len(bars) == last and sum(money(amount) for _, amount in bars) == total
    assert {text.split()[0]: text.split(" ", 1)[1] for text, _ in bars if " " in text} == hours
    nets = [money(cell.text) for cell in browser.all("#groups tbody td:last-child")]
    assert len(nets) >= 3 and sum(nets) == total
    for gross, credits, net in zip(
        *(browser.all(f"#groups tbody td:nth-child({n})") for n in (2, 3, 4)), strict=True
    ):
        assert money(gross.text) + money(credits.text) == money(net.text)
    head, *rows, foot = lived.table(query)
    assert head == [group, "gross USD", "credits USD", "net USD", "net exact USD"]
    assert sum(Decimal(row[3]) for row in rows) == Decimal(foot[3]) == total
    assert drawn(browser) == pytest.approx(float(total), rel=0.003)
    bill = revenue(lived, month)
    assert abs(Decimal(foot[4]) - bill) < Decimal("1e-11"), "exactly, behind the cents"
    assert abs(bill - total) <= Decimal("0.005")


def drawn(browser: Browser) -> float:
    """Return what the bars' areas stand for, by the labels of the axis."""
    return float(
        browser.script("""
      const [low, top] = [...document.querySelectorAll('svg.chart text[text-anchor=end]')].map((t) => t).slice(0, 6)
        .map((t) => [Number(t.textContent.replace(/[$,k]/g, '')) * (t.textContent.endsWith('k') ? 1000 : 1),
                     Number(t.getAttribute('y')) - 4]).filter((_, i) => i === 0 || i === 5);
      let sum = 0;
      for (const path of document.querySelectorAll('svg.chart path.bar'))
        for (const [, , a, b] of path.getAttribute('d').matchAll(/M([\\d.]+) ([\\d.]+)V([\\d.]+)h/g)) sum += a - b;
      return sum * (top[0] - low[0]) / (low[1] - top[1]);""")  # noqa: E501
    )


def test_the_invoices_total_is_that_of_the_explorer(lived: Console) -> None:
    """Issued, with a credit that is used up in it: lines + credits = the explorer's net, to the
    cent."""
    document = lived.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]
    foot = lived.table("from=2026-03-01&to=2026-03-31&group=sku")[-1]
    assert Decimal(document["subtotal"]) == Decimal(foot[3])
    by_sku = {
        row[0]: Decimal(row[4])
        for row in lived.table("from=2026-03-01&to=2026-03-31&group=sku")[1:-1]
    }
    assert set(by_sku) == {line["sku"] for line in document["lines"]}


@pytest.mark.parametrize(
    "group", ["project", "region", "zone", "generation", "usage", "sku", "label:team", "job"]
)
def test_every_dimension_and_every_bar_has_the_same_total(lived: Console, group: str) -> None:
    for query in (
        "from=2026-02-28&to=2026-11-20&bucket=month",
        "from=2026-11-01&to=2026-11-01&bucket=hour",
    ):
        whole = lived.table(f"{query}&group=type")
        found = lived.table(f"{query}&group={group}")
        assert found[-1] == whole[-1]
        parts = [lived.table(f"{query}&where={group}={row[0]}")[-1] for row in found[1:-1]]
        exact = sum(Decimal(part[4]) for part in parts)
        assert abs(exact - Decimal(whole[-1][4])) < Decimal("1e-10")


def test_a_filter_and_an_hour_that_comes_twice_are_in_the_address(browser: Browser) -> None:
    browser.open(f"{BILLING}/explorer?from=2026-11-01&to=2026-11-01&bucket=hour")
    browser.script("document.querySelector('details.data').open = true")
    hours = [cell.text for cell in browser.all("#bars tbody th")]
    assert len(hours) == 25 and hours[1:4] == ["11-01 01:00-07", "11-01 01:00-08", "11-01 02:00"]
    Select(browser.one("#group")).select_by_value("node")
    Select(browser.one("#dim")).select_by_value("label:team")
    browser.one("#value").send_keys("vision")
    browser.one("form.ask button").click()
    browser.until(
        lambda: "dim=label%3Ateam&value=vision" in browser.driver.current_url, 10, "the address"
    )
    assert [cell.text for cell in browser.all("#groups tbody th")] == [
        "us-central1-a/lite", "us-central1-a/more", "us-central1-f/trainer",
    ]  # fmt: skip
    browser.one("#groups tbody a").click()
    browser.until(lambda: len(browser.all("#groups tbody tr")) == 1, 10, "one group")
    assert len(browser.all("input[name=where]")) == 2, "both filters stand"


def test_a_line_is_explained_down_to_seconds_and_events(browser: Browser, lived: Console) -> None:
    document = lived.ok("GET", f"{HERE}/invoices/2026-03")["invoice"]
    browser.open(f"{BILLING}/invoices/2026-03")
    assert browser.text("#total") == amount_text(document["total"], "USD")
    line = next(
        line for line in document["lines"] if line["sku"] == "tpu-v2-32/us-central1/on-demand"
    )
    browser.one(f"a[href*='{line['sku'].replace('/', '%2F')}']").click()
    browser.until(lambda: browser.all("#exact"), 10, "the explanation")
    assert browser.text("#exact") == money_text(line["exactUsd"])
    assert browser.one("#exact").get_attribute("title") == f"${line['exactUsd']} exactly"
    seconds = [
        int(cell.text.replace(",", "")) for cell in browser.all("#parts tbody td:nth-child(4)")
    ]
    exact = [cell.get_attribute("title") for cell in browser.all("#parts tbody td:last-child span")]
    amounts = [Decimal(title.removeprefix("$").removesuffix(" exactly")) for title in exact]
    assert sum(seconds) == line["seconds"] and sum(amounts) == Decimal(line["exactUsd"])
    known = {event["id"] for event in lived.ok("GET", f"{HERE}/events?pageSize=1000")["events"]}
    shown = [cell.text for cell in browser.all("tbody th code")]
    assert len(shown) >= 4 and set(shown) <= known


def test_every_link_of_an_invoice_leads_somewhere(lived: Console) -> None:
    links = re.findall(r'href="(/[^"]*)"', lived.page("/invoices/2026-03").text)
    cookies = {"podyard_session": lived.token}
    with httpx.Client(
        base_url=lived.url, cookies=cookies, trust_env=False, follow_redirects=True
    ) as visitor:
        for link in dict.fromkeys(map(html.unescape, links)):
            assert visitor.get(link).status_code == 200, link


def test_costs_of_work_are_those_of_the_api(browser: Browser, lived: Console) -> None:
    (job,) = lived.ok("GET", f"{HERE}/costs?month=2026-02")["jobs"]
    browser.open(f"{BILLING}/runs?month=2026-02")
    row = browser.text("tbody tr")
    assert (
        money_text(job["amount"]) in row
        and "off" not in row
        and "2 attempts" in row
        and "3 steps done again" in row
    )
    browser.open(f"{BILLING}/spot?month=2026-02")
    assert money_text(job["saved"]) in browser.text("tbody tr")
    browser.open(f"{BILLING}/spot?month=2026-03")
    assert "spotty" in browser.text("details.data") and browser.all("svg.chart rect.bar")
    browser.open(f"{BILLING}/idle")
    assert "podyard tpu delete big --zone=us-central1-a" in browser.text("main")
    browser.open(f"{BILLING}/what-if?usage=spot")
    answer = lived.ok("POST", f"{HERE}/costs:whatIf", {"usage": "spot"})
    assert money(browser.text("#changed")) == round(Decimal(answer["changed"]), 2)


def test_a_ready_node_ticks_by_the_platforms_clock(browser: Browser, lived: Console) -> None:
    lived.ok("POST", "/podyard/v1/clock:setRate", {"rate": 3600})
    try:
        browser.open(BILLING)
        first = money(browser.text("[data-tick]"))
        browser.until(lambda: money(browser.text("[data-tick]")) > first + 20, 10, "an hour of $24")
        text = lived.page("").text
        assert "data-tick" in text and "$24.00" in text, (
            "the figure and the rate are there without a script"
        )
    finally:
        lived.ok("POST", "/podyard/v1/clock:setRate", {"rate": 1})


def test_pages_work_by_keys_alone(browser: Browser) -> None:
    browser.open(f"{BILLING}/explorer")
    seen: list[str] = []
    for _ in range(60):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(
            str(
                browser.script(
                    "const e = document.activeElement; return e.id || e.textContent.trim()"
                )
            )
        )
        if seen[-1] == "Show":
            break
    order = [
        name
        for name in seen
        if name in ("Month", "What if", "from", "to", "bucket", "group", "measure", "Show")
    ]
    assert list(dict.fromkeys(order)) == [
        "Month",
        "What if",
        "from",
        "to",
        "bucket",
        "group",
        "measure",
        "Show",
    ]
    outline = browser.script("return getComputedStyle(document.activeElement).outlineStyle")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert outline == "solid"
    browser.until(lambda: "group=type" in browser.driver.current_url, 10, "the answer")


def test_the_figure_under_the_pointer_is_that_bars(browser: Browser) -> None:
    browser.open(f"{BILLING}/explorer?from=2026-03-01&to=2026-03-31&group=node")
    browser.script("document.querySelector('details.data').open = true")
    rows = [re.split(r"\s+", row.text) for row in browser.all("#bars tbody tr")]
    titles = browser.script(
        "return [...document.querySelectorAll('svg .hover title')].map((t) => t.textContent)"
    )
    assert len(titles) == len(rows) == 31
    for title, row in zip(titles, rows, strict=True):
        day, amount = title.splitlines()[0].split(": ")
        assert (day, amount) == (row[0], row[-1])
    column = browser.all("svg .hover")[7]
    ActionChains(browser.driver).move_to_element(column).perform()
    under = browser.script("return document.querySelector('svg .hover:hover title').textContent")
    assert under.startswith("2026-03-08: $") and "/big: $" in under
    first, *parts = [money(line.rsplit("$", 1)[1]) for line in under.splitlines()]
    assert sum(parts) == first, "what the bar is made of adds up to it"


def test_nodes_are_sorted_by_what_they_have_cost(tmp_path: Path) -> None:
    """Also where what has cost most is gone, and what has cost least is in use."""
    with open_console(tmp_path) as yard:
        yard.create("dear", "v2-32", "us-central1-a")
        yard.create("older")
        yard.to("2026-03-01T12:00:00Z")
        yard.ok("DELETE", f"{yard.nodes('us-central1-a')}/dear")
        yard.step()
        yard.create("newer")
        yard.to("2026-03-01T13:00:00Z")
        rows = re.findall(
            r'<th scope="row">(?:<a [^>]*>)?(\w+)', yard.page("").text.split("By resource")[1]
        )
    assert rows == ["dear", "older", "newer"]


@pytest.mark.parametrize("page", ["", "/budgets"])
def test_a_budget_above_100_percent_looks_like_it(browser: Browser, page: str) -> None:
    browser.open(f"{BILLING}{page}")
    rows = {row.find_element(By.TAG_NAME, "strong").text: row for row in browser.all(".bars > li")}
    beyond, within = rows["year"], rows["vision"]
    spent, amount, share, over = re.search(  # type: ignore[union-attr]
        r"(\$[\d,.]+) of (\$[\d,.]+), ([\d,.]+) %, (\$[\d,.]+) over", beyond.text
    ).groups()
    assert money(spent) - money(amount) == money(over) and money(share) > 100
    assert "over budget" in beyond.text and "over" not in within.text
    bars = [row.find_element(By.TAG_NAME, "progress") for row in (beyond, within)]
    lengths = [float(bar.get_property("value")) / float(bar.get_property("max")) for bar in bars]
    assert lengths[0] == pytest.approx(float(money(amount) / money(spent)), rel=0.01), (
        "the budget is a part of the bar"
    )
    colours = [bar.value_of_css_property("background-color") for bar in bars]
    assert colours[0] != colours[1]
    assert "of the budget" in bars[0].get_attribute("aria-valuetext")


PAGES = (
    "", "/explorer?from=2026-03-01&to=2026-03-31",
    "/explorer?from=2026-11-01&to=2026-11-03&bucket=hour&group=node",
    "/explorer?group=nonsense", "/runs?month=2026-02", "/idle", "/spot?month=2026-03",
    "/commitments", "/invoices",
    "/invoices/2026-03", "/prices", "/budgets", "/what-if?usage=spot",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_can_be_read_and_fits(browser: Browser, scheme: str, width: int) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.errors()
    try:
        for path in PAGES:
            browser.open(f"{BILLING}{path}")
            assert browser.script(LABELS_PROBE) == [], path
            assert browser.script(CONTRAST_PROBE) == [], path
            assert browser.script(PAGE_PROBE) == [], path
            assert (
                browser.script("return document.documentElement.scrollWidth - innerWidth") <= 0
            ), path
            assert all("400" in message for message in browser.errors()), path
            assert len(browser.driver.page_source) < SIZE_MAX, path
            assert (
                "0000000001" not in browser.text("main") and "NaN" not in browser.driver.page_source
            )
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_use_every_page_says_so_and_a_stranger_sees_none(tmp_path: Path) -> None:
    with open_console(tmp_path) as yard:
        for path in PAGES:
            if "nonsense" not in path and "/invoices/" not in path and "what-if" not in path:
                answer = yard.page(path)
                assert (
                    answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
                ), path
        assert "Nothing used yet" in yard.page("").text
        body = {"email": "eve@example.com", "project": "demo", "roles": ["tpu.viewer"]}
        yard.token = yard.ok("POST", "/podyard/v1/tokens", body)["token"]
        for path in PAGES:
            if path != "/prices":  # no secret
                assert yard.page(path).status_code == 403, path


def test_texts_of_users_are_text(lived: Console) -> None:
    for query in (
        f"group=label:{EVIL}",
        f"dim=node&value={EVIL}",
        f"where=node={EVIL}",
        f"from={EVIL}",
    ):
        answer = lived.page(f"/explorer?{query}")
        assert answer.status_code in (200, 400) and "<img" not in answer.text


def test_by_invoice_month_the_explorer_has_the_totals_of_the_invoices(
    browser: Browser, lived: Console
) -> None:
    browser.open(f"{BILLING}/explorer")
    Select(browser.one("#by")).select_by_value("invoice")
    browser.script("document.querySelector('#from').value = '2026-02-01'")
    browser.one("form.ask button").click()
    browser.until(lambda: "by=invoice" in browser.driver.current_url, 10, "the address")
    browser.script("document.querySelector('details.data').open = true")
    bars = {row.find_element(By.TAG_NAME,
        "th").text: money(row.find_element(By.TAG_NAME, "td").text)
            for row in browser.all("#bars tbody tr")}  # fmt: skip
    issued = {
        one["month"]: Decimal(one["total"])
        for one in lived.ok("GET", f"{HERE}/invoices")["invoices"]
    }
    draft = lived.ok("GET", f"{HERE}/invoices:preview")["invoice"]
    assert len(issued) == 10 and bars == {**issued, draft["month"]: Decimal(draft["total"])}
    assert money(browser.text("#total")) == sum(bars.values())
    head, *rows, foot = lived.table("by=invoice&from=2026-02-01&to=2026-12-03&group=node")
    assert head == ["node", "gross USD", "credits USD", "net USD"]
    assert sum(Decimal(row[3]) for row in rows) == Decimal(foot[3]) == sum(bars.values())


def test_an_invoice_leads_to_its_page_for_paper_and_to_its_pdf_where_one_can_be_made(
    lived: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for month in ("2026-03", "2026-12"):
        assert (
            f'href="/console/demo/invoices/{month}/print"' in lived.page(f"/invoices/{month}").text
        )
        assert f'href="/console/demo/invoices/{month}/pdf"' in lived.page(f"/invoices/{month}").text
    monkeypatch.setattr(billing_invoices, "_has_pdf", lambda: False)
    text = lived.page("/invoices/2026-03").text
    assert "/print" in text and "/pdf" not in text and "podyard[pdf]" in text
