"""What people do with jobs, by mouse and keyboard, with the clicks counted: none takes more than
six."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser
from tests.browser.people import CLICKS_MAX, ClickCounter
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ZONE = "us-central1-f"
FAILING = (
    'echo "hello from $TPU_WORKER_ID"; [ "$TPU_WORKER_ID" != 2 ] || '
    "{ echo \"ModuleNotFoundError: No module named 'flax'\" >&2; exit 1; }"
)


@pytest.fixture(scope="module")
def trained(stack: Stack) -> Iterator[str]:
    """The node of two short runs, which differ in one setting."""
    stack.create_node("tasks", "v2-8", ZONE)
    for job, rate in (("run-a", 0.001), ("run-b", 0.01)):
        path = stack.submit(
            job,
            ZONE,
            node="tasks",
            steps=12,
            checkpointEverySteps=5,
            arguments={"learningRate": rate},
        )
        assert stack.wait_job(path)["state"] == "SUCCEEDED"
    yield "tasks"
    stack.delete_node("tasks", ZONE)


@pytest.fixture
def person(browser: Browser) -> Iterator[ClickCounter]:
    """Hands in front of the first page."""
    browser.errors()
    browser.open("/console")
    browser.until(lambda: browser.path() == "/console/demo/overview", 10, "the first page")
    found = ClickCounter(browser)
    yield found
    assert 0 < found.clicks <= CLICKS_MAX
    assert browser.errors() == []


def open_job(browser: Browser, person: ClickCounter, job: str) -> None:
    person.click("nav a[href$='/jobs']")
    link = f"a[href$='jobs/{ZONE}/{job}']"
    browser.until(lambda: browser.all(link), 10, "the job in the list")
    person.click(link)
    browser.until(lambda: browser.text("h1").startswith(job), 10, "the job's page")


def test_submit_and_watch_a_job(browser: Browser, person: ClickCounter, trained: str) -> None:
    person.click("a.primary[href$='/jobs/new']")
    browser.until(lambda: browser.all("#steps"), 10, "the form")
    person.type("#job_id", "watched")
    person.type("#steps", "400")
    person.click("[data-submit]")
    browser.until(
        lambda: browser.text(".phases [aria-current]") == "Training",
        60,
        "the phase, without a reload",
    )
    drawn = (
        "return document.querySelectorAll('.chart-frame polyline')[0]?.points.numberOfItems ?? 0"
    )
    first = browser.until(lambda: browser.script(drawn), 30, "a curve")
    browser.until(lambda: browser.script(drawn) > first, 30, "new points, without a reload")
    for name in ("Speed", "Time left", "Elapsed", "Device time"):
        assert name in browser.text(".tiles")
    browser.until(lambda: "at the end" in browser.text(".tiles"), 20, "the cost at the end")
    browser.open("/console/demo/overview")
    row = "[data-part=overview_jobs] "
    browser.until(lambda: browser.all(f"{row}svg.spark polyline"), 20, "its curve on the overview")
    assert "watched" in browser.text(f"{row}th a")
    browser.open(f"/console/demo/jobs/{ZONE}/watched")
    person.click("[data-dialog='confirm-cancel']")
    person.click("#confirm-cancel button.danger")
    browser.until(lambda: browser.text("h1 .badge") == "CANCELLED", 30, "its end")


def test_read_the_log_of_one_worker_and_why_a_job_failed(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    stack.create_node("four-hosts", "v2-32", "us-central1-a")
    jobs = "/podyard/v1/projects/demo/locations/us-central1-a/jobs"
    body = {"run": {"command": FAILING}, "node": "four-hosts", "maxFailures": 0}
    stack.call("POST", f"{jobs}?jobId=failing", body)
    assert stack.wait_job(f"{jobs}/failing")["state"] == "FAILED"
    browser.open("/console/demo/overview")
    browser.until(lambda: browser.all(".events a[href$='/failing']"), 10, "the event")
    person.click(".events a[href$='/failing']")
    browser.until(lambda: browser.text("h1 .badge") == "FAILED", 10, "the job's page")
    assert "No module named 'flax'" in browser.text(".failure .log")
    assert "requirements.txt" in browser.text("[data-part=job_head] .note"), "what to do"
    top = (
        "return [...document.querySelectorAll('main section, main .failure, main "
        ".tiles')][0].className"
    )
    assert "failure" in browser.script(top), "the failure comes first"
    person.click(".failure a[href*='replica=2']")
    browser.until(
        lambda: browser.path().endswith("/failing") and "hello from 2" in browser.text("#logs"),
        10,
        "the log",
    )
    assert "hello from 1" not in browser.text("#logs .log")
    person.type("#search", "flax" + Keys.ENTER)
    browser.until(
        lambda: "hello from 2" not in browser.text("#logs .log"), 10, "the lines with the text"
    )
    assert "flax" in browser.text("#logs .log")
    stack.delete_node("four-hosts", "us-central1-a")


def test_clone_a_job_with_another_rate(
    browser: Browser, person: ClickCounter, stack: Stack, trained: str
) -> None:
    open_job(browser, person, "run-a")
    person.click("a[href*='/jobs/new?']")
    field = "[name='arg.learningRate']"
    browser.until(lambda: browser.all(field), 10, "the form")
    assert browser.one("#steps").get_attribute("value") == "12"
    person.type(field, Keys.END + Keys.BACKSPACE * len("0.001") + "0.005")
    person.click("[data-submit]")
    browser.until(
        lambda: browser.path().startswith(f"/console/demo/jobs/{ZONE}/job-"),
        10,
        "the page of the clone",
    )
    assert "learningRate=0.005" in browser.text("main")
    job = browser.path().rpartition("/")[2]
    assert job != "run-a"
    found = stack.wait_job(f"/podyard/v1/projects/demo/locations/{ZONE}/jobs/{job}")
    assert (found["arguments"]["learningRate"], found["steps"]) == (0.005, 12)


def test_compare_two_runs(browser: Browser, person: ClickCounter, trained: str) -> None:
    open_job(browser, person, "run-a")
    person.click("a[href*='/compare?']")
    other = f"input[value='{ZONE}/run-b']"
    browser.until(lambda: browser.all(other), 10, "the runs to choose from")
    person.click(other)
    person.click(".choices button")
    browser.until(
        lambda: len(browser.all("figure[data-figure=loss] .chart-key[aria-pressed]")) >= 2,
        10,
        "two curves",
    )
    rows = {row.text.split(" ")[0]: row for row in browser.all("table.compare tbody tr")}
    assert "0.001 0.01" in rows["learningRate"].text and "differs" in rows[
        "learningRate"
    ].get_attribute("innerHTML")
    assert "differs" not in rows["Global"].get_attribute("innerHTML")
    assert len(browser.all("figure[data-figure=loss] polyline.line")) >= 2


def test_preempt_a_node_and_see_the_job_recover(
    browser: Browser, person: ClickCounter, stack: Stack, trained: str
) -> None:
    # One that Google may take back, and that comes back: the job makes it again for itself.
    fields = {
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "schedulingConfig": {"preemptible": True},
    }
    path = stack.submit("recovers", ZONE, steps=5000, checkpointEverySteps=20, **fields)
    stack.wait_steps(path, 40)
    open_job(browser, person, "recovers")
    person.click(".facts a[href*='/nodes/']")
    browser.until(lambda: browser.all("[data-dialog='confirm-preempt']"), 10, "the node's page")
    person.click("[data-dialog='confirm-preempt']")
    person.click("#confirm-preempt button.danger")
    browser.until(lambda: stack.call("GET", path)["preemptions"], 20, "the preemption")
    browser.open(f"/console/demo/jobs/{ZONE}/recovers")
    marks = "figure[data-figure=loss] .mark.lost"
    browser.until(lambda: browser.all(marks), 90, "the preemption in the curve, without a reload")
    assert "PREEMPTED" in browser.script(f"return document.querySelector({marks!r}).textContent")
    browser.until(
        lambda: len(browser.all("svg.timeline rect:not(.track)")) >= 2,
        30,
        "two attempts on the timeline",
    )
    assert "✕ failed, preempted or timed out" in browser.text(".timeline-box .legend")
    stack.call("POST", f"{path}:cancel")
    stack.wait_job(path)


def test_see_the_cost_and_download_a_checkpoint(
    browser: Browser, person: ClickCounter, trained: str, tmp_path: Path
) -> None:
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Page.setDownloadBehavior", behaviour)
    open_job(browser, person, "run-a")
    tile = browser.text(".tiles")
    assert "Cost so far" in tile and "$0." in tile
    person.click("a[download$='.safetensors']")
    files = browser.until(lambda: list(tmp_path.glob("run-a-*.safetensors")), 20, "the file")
    assert files[0].stat().st_size > 1000


def test_values_are_read_from_a_chart_by_mouse_and_by_keyboard(
    browser: Browser, person: ClickCounter, trained: str
) -> None:
    open_job(browser, person, "run-a")
    figure, where = "figure[data-figure=loss]", "figure[data-figure=loss] .chart-at"
    browser.until(lambda: browser.text(where) == "latest", 10, "the chart")
    value = f"{figure} .chart-key b"
    last = browser.text(value)
    picture = browser.one(f"{figure} svg")
    hands = ActionChains(browser.driver, duration=40)
    hands.move_to_element(picture).perform()
    browser.until(
        lambda: browser.text(where).startswith("step ") and browser.all(f"{figure} .cross"),
        5,
        "the crosshair",
    )
    assert browser.text(value) != last
    ticks = (
        "return [...document.querySelectorAll('figure[data-figure=loss] "
        "text.axis')].map((one) => "
        "one.textContent)"
    )
    whole = browser.script(ticks)
    hands.move_to_element(picture).click_and_hold().move_by_offset(60, 0).release().perform()
    browser.until(lambda: browser.one("[data-unzoom]").is_enabled(), 5, "the zoom")
    assert browser.script(ticks) != whole
    person.click("[data-unzoom]")
    browser.until(lambda: browser.script(ticks) == whole, 5, "the whole curve again")
    person.click("[data-log-scale]")
    browser.until(lambda: browser.script(ticks) != whole, 5, "the log scale")
    browser.script("document.querySelector('[data-smooth]').focus()")
    person.keys(Keys.END)
    browser.until(
        lambda: browser.all(f"{figure} polyline.raw"), 5, "the smoothed line over the raw one"
    )
    browser.script(f"document.querySelector({figure!r}).focus()")
    person.keys(Keys.HOME)
    browser.until(lambda: browser.text(where) == "step 1", 5, "the first point")
    person.keys(Keys.ARROW_RIGHT)
    browser.until(lambda: browser.text(where) == "step 2", 5, "the second point")


def test_resize_a_job_to_a_larger_type(
    browser: Browser, person: ClickCounter, stack: Stack
) -> None:
    jobs = "/podyard/v1/projects/demo/locations/europe-west4-a/jobs"
    place = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-vm-base"}
    body = {"recipe": "digits-cnn", "steps": 100_000, **place}
    stack.call("POST", f"{jobs}?jobId=grows", body)
    path = f"{jobs}/grows"
    browser.until(lambda: stack.call("GET", path).get("stepsDone"), 60, "its first steps")
    person.click("nav a[href$='/jobs']")
    browser.until(lambda: browser.all("a[href$='/grows']"), 10, "the job in the list")
    person.click("a[href$='/grows']")
    browser.until(lambda: browser.all("a[href$='/grows/type']"), 10, "the job's page")
    person.click("a[href$='/grows/type']")
    browser.until(lambda: browser.all("input[value='v3-32']"), 10, "the types")
    row = browser.one("input[value='v3-32']").find_element("xpath", "ancestor::tr").text
    assert "$32" in row and "now" in row, row
    person.click("input[value='v3-32']")
    person.click("main button.primary")
    browser.until(lambda: browser.path().endswith("/europe-west4-a/grows"), 10, "its page")
    saved = browser.until(lambda: stack.call("GET", f"{path}:checkpoints").get("checkpoints"), 60,
        "a checkpoint")[0]["step"]  # fmt: skip

    def runs() -> bool:
        job = stack.call("GET", path)
        return job["acceleratorType"] == "v3-32" and int(job["stepsDone"]) > saved

    browser.until(runs, 120, "new steps on the larger type")
    browser.until(lambda: "v3-32" in browser.text(".tiles"), 10, "the type, without a reload")
    second = stack.call("GET", f"{path}:attempts")["attempts"][-1]
    assert second["resumeStep"] >= saved > 0
    assert [one["outcome"] for one in stack.call("GET", f"{path}:attempts")["attempts"][:-1]] == [
        "RESIZED"
    ]
    stack.call("POST", f"{path}:cancel", {})
