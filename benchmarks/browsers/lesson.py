"""A class with one browser each: every student signs in by a link, creates a node, opens a notebook
on it, types a listing, and reads time, memory and dollars; the teacher sees the cost of each
student and resets all.

    python -m benchmarks.browsers.lesson [--students 20] [--at-once 4]

Each student is a Chromium process with a fresh profile, at most `--at-once` of them at a time;
their nodes, notebooks and kernels stay until the reset. Needs chromium, chromedriver and JupyterLab
(podyard[notebook]). The listing trains a small network on images of the shape of Fashion-MNIST,
which are drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Browser, open_browser
from tests.stack import Stack, open_stack

ZONE = "us-central1-a"  # its pod of v2 holds 64 nodes of v2-8
CELL = ".jp-Notebook .jp-CodeCell.jp-mod-active .cm-content"
STEP_SECONDS_MAX = 240.0  # of one step of a student, on a machine with other work
LISTING = """\
import os, jax, jax.numpy as jnp
print('address', os.environ['COLAB_TPU_ADDR'])
print(len(jax.devices()), 'devices')
images = jax.random.uniform(jax.random.key(0), (256, 28 * 28))
labels = jnp.arange(256) % 10
w = {'a': jnp.zeros((784, 128)) + 0.01, 'b': jax.random.normal(jax.random.key(1), (128, 10))}
def loss(w): return -jnp.mean(jax.nn.log_softmax(jnp.tanh(images @ w['a']) @ w['b'])[jnp.arange(256), labels])
def train_step(w): return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w))
train_step = jax.jit(train_step)
for step in range(60): w = train_step(w)
print('trained, loss', float(loss(w)) < 2.4)
"""  # noqa: E501


@dataclasses.dataclass(frozen=True, slots=True)
class Lesson:
    """The results of a student: seconds until each step was done, from the sign-in on; and what the
    console showed."""

    project: str
    ready: float
    notebook: float
    trained: float
    priced: float
    program: str
    cost: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="browsers that are open together")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="podyard-lesson-") as folder,
        open_stack(Path(folder) / "data") as stack,
    ):
        begun = time.monotonic()
        links = _invite(stack, options.students)
        with ThreadPoolExecutor(options.at_once) as pool:
            lessons = list(pool.map(lambda item: _attend(stack, *item), links.items()))
        memory = _memory_of_hosts(stack)
        _print_lessons(lessons, options.at_once, time.monotonic() - begun)
        print(f"a notebook and its kernel that stay open: {memory / len(lessons) / 2**20:,.0f} MiB")
        _teach(stack, [lesson.project for lesson in lessons])


def _invite(stack: Stack, students: int) -> dict[str, str]:
    """Return the link of each student by project; the account of `demo` pays for all."""
    words = ("project", "create", f"student-{{01..{students:02}}}", "--quota", "chips=32")
    answer = stack.command(*words, "--invite", "-o", "json", "--data", str(stack.data))
    assert answer.returncode == 0, answer.stderr
    links = {}
    answers = json.loads(answer.stdout)
    for row in answers if isinstance(answers, list) else [answers]:  # one project: one object
        project = row["projectId"]
        body = {"paidBy": "projects/demo"}
        stack.call("PUT", f"/podyard/v1/projects/{project}/billingInfo", body)
        links[project] = row["link"]
    return links


def _attend(stack: Stack, project: str, link: str) -> Lesson:
    with open_browser(stack) as browser:
        browser.driver.delete_all_cookies()  # those of the owner, who opens browsers in tests
        browser.driver.get(link)
        student = _Student(browser, project)
        return Lesson(
            project,
            student.create_node(),
            student.open_notebook(),
            student.train(),
            student.read_price(),
            student.program,
            student.cost,
        )


class _Student:
    def __init__(self, browser: Browser, project: str) -> None:
        self._browser = browser
        self._node = f"/console/{project}/nodes/{ZONE}/mine"
        self._new = f"/console/{project}/nodes/new?zone={ZONE}&accelerator_type=v2-8"
        self._begun = time.monotonic()
        self.program = self.cost = ""

    def create_node(self) -> float:
        sign_in = self._browser.all("main form button.primary")
        if sign_in:
            sign_in[0].click()
            self._wait(lambda: self._browser.path().startswith("/console/"), "the first page")
        self._browser.open(self._new)
        self._browser.one("#node_id").send_keys("mine" + Keys.ENTER)
        return self._wait(lambda: "READY" in self._browser.text("h1"), "the node")

    def open_notebook(self) -> float:
        self._browser.click("a[href$='/notebook']")
        self._wait(lambda: self._browser.all("main form button.primary"), "the button to start")
        self._browser.click("main form button.primary")
        self._wait(lambda: self._browser.all("a[href*='/lab?token=']"), "the link")
        self._browser.driver.get(self._browser.one("a[href*='/lab?token=']").get_attribute("href"))
        card = ".jp-LauncherCard[data-category=Notebook]"
        self._wait(lambda: self._browser.all(card), "JupyterLab")
        self._browser.one(card).click()
        shown = f"return document.querySelector('{CELL}')?.offsetParent != null"
        is_idle = "return /[|] Idle/.test(document.body.innerText)"
        return self._wait(
            lambda: self._browser.script(shown) and self._browser.script(is_idle), "the kernel"
        )

    def train(self) -> float:
        driver = self._browser.driver

        def is_typed() -> bool:
            """JupyterLab can take the focus away while it starts: then the cell is still empty."""
            if "trained" not in self._browser.text(CELL):
                self._browser.script(f"document.querySelector('{CELL}').focus()")
                # As one input: the editor would indent after each line that keys end.
                driver.execute_cdp_cmd("Input.insertText", {"text": LISTING})
            return "trained" in self._browser.text(CELL)

        self._wait(is_typed, "the listing in its cell", pause=1.0)
        ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
        outputs = ".jp-Notebook .jp-OutputArea"

        def is_done() -> bool:
            text = self._browser.text(outputs)
            assert "Traceback" not in text, text
            return "trained, loss True" in text

        seconds = self._wait(is_done, "the training")
        assert "8 devices" in self._browser.text(outputs), self._browser.text(outputs)
        return seconds

    def read_price(self) -> float:
        """Time and memory of the step, and the cost of the node, on the node's page."""

        cells = "return [...document.querySelectorAll('[aria-label=\"Programs on this node\"] tbody tr')].map(r => [...r.cells].map(c => c.textContent.trim()))"  # noqa: E501

        def is_priced() -> bool:
            self._browser.open(self._node)
            table = self._browser.script(cells)
            rows = [row for row in table if row[0].startswith("jit_train_step")]
            if rows:
                name, runs, seconds, _, _, _, memory, _ = rows[0]
                self.program = f"{name}, {runs} runs of {seconds}, memory {memory}"
            return bool(rows) and rows[0][2] != "–"

        seconds = self._wait(is_priced, "the price of the step", pause=2.0)
        tile = "return [...document.querySelectorAll('.tile')].find(t => /Cost so far/.test(t.textContent)).querySelector('strong').textContent"  # noqa: E501
        self.cost = str(self._browser.script(tile)).strip()
        return seconds

    def _wait(self, test: Callable[[], Any], what: str, pause: float = 0.2) -> float:
        """Return the seconds since the student came."""
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while not test():
            if time.monotonic() > deadline:
                page = self._browser.script("return document.body.innerText")
                raise TimeoutError(f"{what}: {page[:600]}")
            time.sleep(pause)
        return time.monotonic() - self._begun


def _memory_of_hosts(stack: Stack) -> int:
    """Bytes of memory that belong to processes of hosts alone."""
    ids = {path.name for path in stack.data.glob("agents/*/hosts/*")}
    memory = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("PODYARD_HOST") in ids:
                memory += process.memory_full_info().uss
    return memory


def _print_lessons(lessons: Sequence[Lesson], at_once: int, seconds: float) -> None:
    print(f"{len(lessons)} students, {at_once} browsers at once: {seconds:.0f} s")
    for step in ("ready", "notebook", "trained", "priced"):
        times = sorted(getattr(lesson, step) for lesson in lessons)
        print(f"{step:9} p50 {times[len(times) // 2]:6.1f} s   max {times[-1]:6.1f} s")
    print(f"one of them read: {lessons[0].program}; cost {lessons[0].cost}")


def _teach(stack: Stack, projects: Sequence[str]) -> None:
    """Read the cost by student in the explorer, then reset all projects."""
    with open_browser(stack) as browser:
        browser.open("/console/demo/billing/explorer?group=project")
        rows = [row.text for row in browser.all("#groups tbody tr")]
        costs = {row.split()[0]: row.split()[-1] for row in rows}
    assert set(projects) <= set(costs), rows
    print(f"the teacher sees {len(projects)} of {len(projects)} students: {costs}")
    begun = time.monotonic()
    words = ("project", "reset", "student-*", "--yes", "--data", str(stack.data))
    answer = stack.command(*words, seconds=300)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for project in projects:
        left = stack.call("GET", f"/v2/projects/{project}/locations/-/nodes")
        assert not left.get("nodes"), left
    print(f"all projects are reset after {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
