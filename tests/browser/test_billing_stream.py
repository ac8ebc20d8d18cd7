"""Billing pages whose figures are not there yet: the frame is painted first, refusals keep their
status, and what goes wrong later is said in the page. The bill is held up by an event, never by
time."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.control.billing import kept_bills
from podyard.web.billing import billing
from podyard.web.billing import stream as billing_stream
from podyard.web.billing import turns as billing_turns
from tests.browser.conftest import open_browser
from tests.browser.test_billing import BILLING, PAGE_PROBE, Console, open_console
from tests.browser.test_console import CONTRAST_PROBE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

WAITING = "Working out the bill of 2 nodes…"
SECONDS_MAX = 30.0  # of a test that fails


class Held:
    """A bill that is being made until it is let go; `failure`: how it ends then."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.failure: BaseException | None = None
        self.begun = 0


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found, real = Held(), kept_bills._make

    def made(*arguments: Any) -> Any:
        found.begun += 1
        assert found.free.wait(SECONDS_MAX)
        if found.failure is not None:
            raise found.failure
        return real(*arguments)

    monkeypatch.setattr(kept_bills, "_make", made)
    yield found
    found.free.set()


@pytest.fixture
def yard(tmp_path: Path, held: Held) -> Iterator[Console]:
    """A cold process; what has used anything is two nodes."""
    with open_console(tmp_path) as found:
        found.create("one")
        found.create("two")
        found.step(60)
        yield found
        held.free.set()


@contextlib.contextmanager
def streamed(yard: Console, path: str) -> Iterator[tuple[httpx.Response, Iterator[str]]]:
    cookies = {"podyard_session": yard.token}
    with (
        httpx.Client(
            base_url=yard.url, cookies=cookies, trust_env=False, timeout=SECONDS_MAX
        ) as visitor,
        visitor.stream("GET", f"{BILLING}{path}") as response,
    ):
        yield response, response.iter_text()


SKU = "tpu-v2-device/us-central1/on-demand"
LINE = urlencode({"id": f"{SKU}@4.50"})
HELD_PAGES = (
    "", "/explorer", "/explorer?by=invoice", "/idle", "/commitments", "/budgets",
    "/what-if?usage=spot", "/invoices/2026-03", f"/invoices/2026-03/line?{LINE}",
)  # fmt: skip
REFUSED = {
    "/idle?month=nonsense": 400,
    "/runs?month=2026-13": 400,
    "/explorer?group=nonsense": 400,
    "/explorer?from=2026-03-02&to=2026-03-01": 400,
    "/explorer?by=colour": 400,
    "/explorer?by=invoice&from=1990-01-01&to=2026-03-01": 400,
    "/what-if?usage=nonsense": 400,
    "/invoices/nonsense": 400,
    "/invoices/2026-01": 404,
    "/invoices/2026-03/line?id=nonsense": 404,
    f"/invoices/2026-03/line?id={SKU}@4.51": 404,
}


def test_the_frame_comes_before_the_figures_and_they_are_one_document(
    yard: Console, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in HELD_PAGES:
        held.free.clear()
        kept_bills._shelves.clear()
        with streamed(yard, path) as (response, parts):
            frame = next(parts)
            assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
            assert (
                f'<p class="waiting" role="status">{WAITING}</p>' in frame
                and 'aria-label="Billing"' in frame
            )
            assert frame.count("<h1>") == 1 and "</main>" not in frame
            held.free.set()
            rest = "".join(parts)
        text = frame + rest
        assert text.count("<h1>") == text.count("<main") == text.count("</html>") == 1, path
        with monkeypatch.context() as patient:  # however slow the machine is
            patient.setattr(billing_stream, "FRAME_SECONDS", SECONDS_MAX)
            whole = yard.page(path).text
        assert 'class="waiting"' not in whole
        assert (
            whole.partition("<!-- figures -->")[0].split()
            == frame.partition('<p class="waiting"')[0].split()
        )
        assert whole.partition("<!-- figures -->")[2] == rest, path


def test_what_is_refused_keeps_its_status_while_the_bill_is_made(yard: Console, held: Held) -> None:
    for path, status in REFUSED.items():
        held.free.clear()
        kept_bills._shelves.clear()
        with streamed(yard, path) as (response, parts):
            assert response.status_code == status, path
            held.free.set()
            text = "".join(parts)
        assert text.count("</html>") == 1 and text.count("<h1>") == 1, path


def test_strangers_are_refused_at_once(yard: Console, held: Held) -> None:
    body = {"email": "eve@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    token, mine = yard.ok("POST", "/podyard/v1/tokens", body)["token"], yard.token
    for path in HELD_PAGES:
        yard.token = token
        assert yard.page(path).status_code == 403, path
    yard.token = mine
    for path, status in (("/console/nowhere/billing", 404), ("/console/nowhere/billing/idle", 404)):
        with httpx.Client(
            base_url=yard.url, cookies={"podyard_session": mine}, trust_env=False
        ) as visitor:
            assert visitor.get(path).status_code == status
    assert held.begun == 0


def test_threads_take_short_turns_while_a_bill_is_made_and_no_longer(
    yard: Console, held: Held
) -> None:
    usual = sys.getswitchinterval()
    assert usual > billing_turns.TURN_SECONDS
    with streamed(yard, "/idle") as (_, one), streamed(yard, "/explorer") as (_, two):
        assert next(one) and next(two)
        assert sys.getswitchinterval() == pytest.approx(billing_turns.TURN_SECONDS)
        held.free.set()
        assert "".join(one) and "".join(two)
    assert sys.getswitchinterval() == pytest.approx(usual)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            PodyardError(Code.FAILED_PRECONDITION, "the card has lost <it>"),
            "the card has lost &lt;it&gt;",
        ),
        (RuntimeError("a secret of ours"), "Internal error"),
    ],
)
def test_what_goes_wrong_after_the_frame_is_said_in_the_page(
    yard: Console, held: Held, failure: BaseException, said: str
) -> None:
    held.failure = failure
    with streamed(yard, "/idle") as (_, parts):
        frame = next(parts)
        assert WAITING in frame
        held.free.set()
        rest = "".join(parts)
    assert f'<p class="error" role="alert"><strong>That did not work.</strong> {said}' in rest
    assert rest.endswith("</html>") and "secret" not in rest and "Platform time" in rest
    held.failure = None
    assert yard.page("/idle").status_code == 200, "nothing of it stays"


def test_files_come_whole(yard: Console, held: Held) -> None:
    threading.Timer(0.3, held.free.set).start()
    answer = yard.page("/explorer?format=csv")
    assert answer.headers["content-type"].startswith("text/csv") and WAITING not in answer.text


def test_a_cold_process_paints_the_frame_before_there_are_figures(
    yard: Console, held: Held
) -> None:
    """In a separate window, since a driver waits for what its own window loads."""
    with open_browser(yard) as browser:  # type: ignore[arg-type]
        browser.script(f"window.other = open('{BILLING}', 'other', 'width=1000,height=800')")
        paints = "return other.performance.getEntriesByType('paint').map((entry) => entry.name)"
        browser.until(
            lambda: "first-contentful-paint" in browser.script(paints),
            SECONDS_MAX,
            "the first paint",
        )
        assert browser.script("return other.document.readyState") == "loading"
        waiting = (
            "const line = other.document.querySelector('.waiting'); return "
            "[line.textContent, "
            "line.offsetHeight > 0]"
        )
        assert browser.script(waiting) == [WAITING, True]
        assert browser.script("return other.document.querySelector('.tabs').offsetHeight") > 20
        assert browser.script("return other.document.querySelector('#month')") is None
        held.free.set()
        browser.until(
            lambda: browser.script("return other.document.readyState") == "complete",
            SECONDS_MAX,
            "the end",
        )
        assert browser.script(
            "return other.document.querySelector('#month').textContent"
        ).startswith("$0.")
        assert (
            browser.script("return other.document.querySelector('.waiting').offsetHeight") == 0
        ), "it is out of the way"
        browser.driver.switch_to.window(browser.driver.window_handles[-1])
        assert browser.script(PAGE_PROBE) == [] and browser.script(CONTRAST_PROBE) == []
        # The overview after sign-in has waited for the same bill, which is held for longer than it
        # may wait.
        assert [error for error in browser.errors() if "/console/demo/overview" not in error] == []


def test_one_viewer_who_asks_many_times_costs_one_page(
    yard: Console, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = billing.dashboard.month_to_date

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return real(*arguments)

    monkeypatch.setattr(billing.dashboard, "month_to_date", counted)
    with contextlib.ExitStack() as open_pages:
        pages = [open_pages.enter_context(streamed(yard, "")) for _ in range(30)]
        assert all(WAITING in next(parts) for _, parts in pages)
        held.free.set()
        assert all("As of" in "".join(parts) for _, parts in pages)
    assert len(made) == 1
