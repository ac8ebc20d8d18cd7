"""What jobs take of hosts: kept for an hour, shared among the hosts of a process, and shown on the
node's page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.control.jobs.host_use import (
    SERIES_MAX,
    STEP_SECONDS,
    STEPS_MAX,
    HostUseHistory,
    ReplicaUse,
)
from podyard.web.front import pages
from podyard.web.nodes import host_charts
from tests.unit.control.gang import Gang, submit
from tests.yard import START, open_yard

MIB_IN_KIB = 1024
HOSTS = range(16)


def _use(
    cpu_seconds: float,
    mib_seconds: float = 0,
    device: float = 0,
    replica: str = "r",
    hosts: int = 1,
) -> ReplicaUse:
    return ReplicaUse(
        replica,
        "job",
        range(hosts),
        round(cpu_seconds * 1e6),
        round(mib_seconds * MIB_IN_KIB),
        device,
    )


def test_what_lies_between_two_reports_is_a_share_of_the_time() -> None:
    history, clock = HostUseHistory(), ManualClock(START)
    history.take(_use(5.0, 100), clock.now())
    clock.advance(10)
    history.take(_use(20.0, 2100, device=4.0, hosts=2), clock.now())
    found = history.of_jobs({"job": HOSTS})
    assert list(found) == [0, 1], "a process of two hosts takes of each of them the same"
    (step,) = found[1]
    assert (step.cores, step.memory_bytes, step.busy_share) == (0.75, 100 * 2**20, 0.4)
    assert list(history.of_jobs({"job": range(1, 2)})) == [0], (
        "a node may have some hosts of a job only"
    )
    assert history.of_jobs({"another": HOSTS}) == {}


def test_a_history_ends_after_an_hour_and_the_oldest_series_go_first() -> None:
    history, clock = HostUseHistory(), ManualClock(START)
    for number in range(STEPS_MAX + 50):
        history.take(_use(number), clock.now())
        clock.advance(STEP_SECONDS)
    assert len(history.of_jobs({"job": HOSTS})[0]) == STEPS_MAX
    for number in range(SERIES_MAX):
        for _ in range(2):
            clock.advance(1)
            history.take(ReplicaUse(f"r{number}", f"job-{number}", (0,), 0, 0, 0.0), clock.now())
    assert history.of_jobs({"job": HOSTS}) == {}
    assert history.of_jobs({f"job-{SERIES_MAX - 1}": HOSTS}) != {}


def test_a_clock_that_is_set_back_and_a_process_that_begins_again_are_left_out() -> None:
    history = HostUseHistory()
    for nanos, cpu in ((20, 5.0), (10, 6.0), (30, 1.0)):
        history.take(_use(cpu), RealTime(nanos * 10**9))
    assert history.of_jobs({"job": HOSTS}) == {}


@pytest.mark.parametrize(
    ("hosts", "names"), [(2, ["host 0", "host 1"]), (9, ["highest of 9 hosts", "mean", "lowest"])]
)
def test_many_hosts_are_three_lines(hosts: int, names: list[str]) -> None:
    history, clock = HostUseHistory(), ManualClock(START)
    for cpu in (0.0, 10.0, 20.0):
        history.take(_use(cpu, device=3.0, hosts=hosts), clock.now())
        clock.advance(STEP_SECONDS)
    now = clock.now().nanos / 1e9
    cpu, _, busy = host_charts.charts_of(history.of_jobs({"job": HOSTS}), now)
    assert cpu.names == names
    assert "from 20 at minutes (0 is now)" in busy.svg, "3 of 15 seconds, in percent"
    assert (
        host_charts.charts_of(history.of_jobs({"job": HOSTS}), now + 2 * STEP_SECONDS * STEPS_MAX)
        == []
    )


def test_a_nodes_page_shows_use_environment_and_plain_words(tmp_path: Path) -> None:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        yard.create("n")
        gang = Gang(yard)
        submit(gang)
        (replica,) = gang.sync()
        url = "/console/demo/nodes/us-central1-f/n"
        assert "No job has run here in the past hour" in yard.call("GET", url).text
        for second in range(4):
            taken = {"cpuMicroseconds": second * 500_000, "memoryKibSeconds": second * 2**20}
            assert gang.report(replica, used=taken).status_code == 200
            yard.clock.advance(1)
        html = unescape(yard.call("GET", url).text)
        assert len(re.findall(r'<svg class="chart"', html)) == 3
        assert "0.50 cores" in html and "1.00 GiB" in html
        assert (
            "Not started" in html
            and "TPU_WORKER_ID=0" in html
            and "ACCELERATOR_TYPE: 'v2-8'" in html
        )
        assert yard.call("GET", f"{url}?worker=0").text.count("<details open>") == 3
        refused = yard.call("GET", f"{url}?worker=1")
        assert refused.status_code == 400 and "workers 0 to 0" in refused.text
