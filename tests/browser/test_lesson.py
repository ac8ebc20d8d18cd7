"""The lesson of eight steps, from the console alone, in Chromium: each step at most three
clicks."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Browser
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

CLICKS_MAX = 3


class Student:
    """Clicks as a student does, on what can be seen, and counts."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.clicks = 0

    def start(self, number: int) -> None:
        """From the list of steps."""
        self.browser.open("/console/demo/lesson")
        self.clicks = 0
        self.click(f".lesson-steps li:nth-child({number}) a")

    def click(self, selector: str) -> None:
        element = self.browser.one(selector)
        self.browser.script(
            f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})"
        )
        element.click()
        self.clicks += 1

    def sees(self, selector: str, text: str) -> None:
        self.browser.until(lambda: text in self.browser.text(selector), 10, text)
        assert self.clicks <= CLICKS_MAX, f"{self.clicks} clicks"


@pytest.fixture
def student(browser: Browser) -> Student:
    browser.errors()
    return Student(browser)


def test_a_student_goes_through_eight_steps_of_at_most_three_clicks(
    student: Student, stack: Stack
) -> None:
    browser = student.browser
    student.start(1)
    student.sees(".film-now", "Cycle 0")
    student.click('[data-go="on"]')
    student.sees(".film-now", "Cycle 1")
    assert browser.text(".lesson-where") == "Step 1 of 8"

    student.start(2)
    student.sees(".lesson-table", "0.100097656")
    student.click(".lesson-choices a[href*='257']")
    student.sees(".lesson-table", "256")
    student.click(".lead a")
    student.sees("main", "float32 operands above, bfloat16 operands below")
    assert browser.all(".lesson-digits mark"), "digits that differ are marked"

    student.start(3)
    student.sees("h1", "Generations")
    browser.one("#b").send_keys("TPU v4")
    student.clicks += 1
    student.click(".lesson-form button")
    student.sees(".lesson-table", "275 TFLOPS")
    assert browser.text(".lesson-where") == "Step 3 of 8", "the form keeps the step"

    student.start(4)
    student.click(".lesson-choices a[href*='v3-8']")
    student.sees(".lesson-reasons", "4 x 123 = 492 TFLOPS, but the device was sold with 420")

    student.start(5)
    student.sees(".film-now", "Start")
    student.click('[data-go="last"]')
    student.sees(".film-now", "Step 4 of 4")
    assert len(browser.all(".reduce .box.done")) == 4

    student.start(6)
    student.click('[data-go="on"]')
    student.sees(".film-now", "Step 1 of 12")
    assert len(browser.all(".reduce .box")) == 64 and browser.all(".arrow.on")

    student.start(7)
    student.click(".lesson-choices a[href*='bandwidth=4']")
    student.sees(".lesson-lead", "3.1 times on average")

    student.start(8)
    student.click("[data-submit]")
    browser.until(lambda: "/nodes/us-central1-f/lesson" in browser.path(), 10, "the node's page")
    student.click("nav[aria-label=Sections] a[href$='/pods']")
    student.sees(".picture", "4 chips by lesson")
    stack.delete_node("lesson", "us-central1-f")
    assert browser.errors() == []


def test_the_steps_follow_each_other_by_one_click(student: Student) -> None:
    student.start(1)
    for number in range(2, 8):
        student.browser.one("[data-next]").click()
        student.browser.until(
            lambda number=number: student.browser.text(".lesson-where") == f"Step {number} of 8",
            10,
            f"step {number}",
        )
    student.browser.one("[data-next]").click()
    student.browser.until(
        lambda: student.browser.path().endswith("/nodes/new"), 10, "the form of step 8"
    )
    assert student.browser.one("#node_id").get_attribute("value") == "lesson"


def test_a_film_is_stepped_by_links_where_there_is_no_script(student: Student) -> None:
    driver = student.browser.driver
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        student.browser.open("/console/demo/all-reduce?accelerator_type=v2-8&lesson=5")
        for number in (1, 2, 3):
            student.browser.one(".film-links a:nth-last-child(2)").click()
            assert student.browser.one(".film-now").text.startswith(f"Step {number} of 4")
        assert student.browser.one(".lesson-where").text == "Step 5 of 8"
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
