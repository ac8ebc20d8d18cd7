"""Lists of nodes and jobs: what an address asks for is what a page shows, and pages join without a
gap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from html import unescape
from pathlib import Path

import httpx
import pytest

from benchmarks.lists import fill
from podyard.db.platform import agents
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.agent import AgentRecord
from podyard.domain.fleet_file import load_fleet
from podyard.http.guard import CSRF_FIELD, SESSION_COOKIE, csrf_token
from podyard.web.front import pages
from tests.yard import ZONE, Yard, open_yard

NODES = {
    "dear": ("v3-8", "europe-west4-a", {"team": "vision"}),
    "plain": ("v2-8", "us-central1-f", {"team": "speech"}),
    "plain-2": ("v2-8", "us-central1-f", {}),
    "wide": ("v2-32", "us-central1-a", {"team": "vision"}),
}
MANY = 205  # three pages


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(Path(tmp_path_factory.mktemp("lists")), routers=(pages.router,)) as found:
        for name, (kind, zone, labels) in NODES.items():
            found.create(name, kind, zone, labels=labels)
        for index in range(3):
            body = {
                "recipe": "digits-cnn",
                "steps": 5,
                "execution": "simulated",
                "stepSeconds": 1000,
                "node": "plain",
                "labels": {"run": f"r{index}"},
            }
            found.ok("POST", f"{found.jobs()}?jobId=job-{index}", body)
        yield found


def _page(yard: Yard, address: str) -> str:
    answer = yard.call("GET", f"/console/demo/{address}")
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def _names(html: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="(?:nodes|jobs)/[^"]+">([^<]+)</a>', html)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["dear", "plain", "plain-2", "wide"]),
        ("?sort=-name", ["wide", "plain-2", "plain", "dear"]),
        ("?sort=-price&label=team", ["wide", "dear", "plain"]),
        ("?sort=-hosts&type=v2-32", ["wide"]),
        ("?zone=us-central1-f", ["plain", "plain-2"]),
        ("?q=PLAIN-", ["plain-2"]),
        ("?q=_", []),  # a sign that stands for others in LIKE
        ("?q=v3", ["dear"]),
        ("?label=team%3Dvision", ["dear", "wide"]),
        ("?label=team", ["dear", "plain", "wide"]),
        ("?label=te%22am", []),
        ("?idle=1", ["dear", "plain-2", "wide"]),
        ("?state=STOPPED", []),
    ],
)
def test_a_list_of_nodes_is_filtered_and_sorted_by_its_address(
    yard: Yard, query: str, names: list[str]
) -> None:
    assert _names(_page(yard, f"nodes{query}")) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?sort=name", ["job-0", "job-1", "job-2"]),
        ("?sort=-name&label=run%3Dr1", ["job-1"]),
        ("?state=QUEUED&q=job-2", ["job-2"]),
        ("?q=no-such", []),
    ],
)
def test_a_list_of_jobs_is_filtered_and_sorted_by_its_address(
    yard: Yard, query: str, names: list[str]
) -> None:
    assert _names(_page(yard, f"jobs{query}")) == names


def test_what_an_address_cannot_ask_for_is_refused_with_what_it_can(yard: Yard) -> None:
    for address, said in (
        ("nodes?sort=spec", "unknown order"),
        ("nodes?sort=created&after=x~y", "is not a value of its order"),
        ("nodes?sort=cost&after=x~y", "is not a value of its order"),
        (f"nodes?q={'x' * 201}", "200 at most"),
    ):
        answer = yard.call("GET", f"/console/demo/{address}")
        assert answer.status_code == 400 and said in unescape(answer.text), address


def test_columns_are_those_of_the_address(yard: Yard) -> None:
    html = _page(yard, "nodes?cols=labels&q=dear")
    assert "team=vision" in html and '<td class="l-zone">' not in html
    assert "cols=labels" in re.findall(r'href="([^"]+)">Node', html)[0], (
        "another order keeps the columns"
    )


def test_nodes_are_sorted_by_their_cost_so_far(yard: Yard) -> None:
    """The node that cost most so far is not always the one with the highest price."""
    yard.clock.advance(3600)
    yard.step()
    yard.create("late", "v3-32", "europe-west4-a")
    yard.step(10)
    try:
        by_cost = _names(_page(yard, "nodes?sort=-cost"))
        assert by_cost[:2] == ["wide", "dear"] and by_cost[-1] == "late"
        assert _names(_page(yard, "nodes?sort=cost&zone=us-central1-f")) == ["plain", "plain-2"]
        assert _names(_page(yard, "nodes?sort=-price"))[0] == "late"
        assert 'href="/console/demo/nodes?sort=-cost"' in _page(yard, "nodes")
    finally:
        yard.ok("DELETE", f"{yard.nodes('europe-west4-a')}/late")
        yard.step()


@pytest.mark.slow
def test_pages_join_without_a_gap_in_both_directions(tmp_path: Path) -> None:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        yard.database.run(lambda uow: fill(uow, MANY, 0))
        for sort in ("name", "-state", "created", "-price", "cost", "-cost"):
            seen, url, walked = [], f"/console/demo/nodes?sort={sort}", []
            while url:
                html = unescape(yard.call("GET", url).text)
                walked.append(_names(html))
                seen += walked[-1]
                url = _link(html, "next")
            assert sorted(seen) == [f"n-{index:06}" for index in range(MANY)] and [
                *map(len, walked)
            ] == [100, 100, 5]
            back = _link(html, "prev")
            assert _names(unescape(yard.call("GET", back).text)) == walked[1], sort


@pytest.mark.parametrize("sort", ["price", "-price", "state", "-zone", "created", "hosts"])
def test_rows_that_are_alike_go_by_their_names_in_every_yard(yard: Yard, sort: str) -> None:
    """Keys of rows are drawn at random: an order by them was another one in each run."""
    down = sort.startswith("-")
    for rows in _alike(yard, sort.removeprefix("-")).values():
        assert [
            name for name in _names(_page(yard, f"nodes?sort={sort}")) if name in rows
        ] == sorted(rows, reverse=down)


def _alike(yard: Yard, sort: str) -> dict[str, list[str]]:
    """Names of nodes of one zone by what they are sorted by."""
    found: dict[str, list[str]] = {}
    for node in yard.ok("GET", yard.nodes("-"))["nodes"]:
        zone, name = node["name"].split("/")[3], node["name"].split("/")[-1]
        value = {"state": node["state"], "created": node["createTime"]}.get(
            sort, node["acceleratorType"]
        )
        found.setdefault(f"{zone} {value}", []).append(name)
    return found


QUEUED = {"wish-1": "v2-8", "wish-2": "v3-8", "big": "v2-128"}


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    fleet = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 4x4}}, v3: {{shape: 2x2}}}}}}")
    with open_yard(
        Path(tmp_path_factory.mktemp("queues")), fleet, routers=(pages.router,)
    ) as found:
        here = f"projects/demo/locations/{ZONE}"
        for name, kind in {"holds": "v2-32", "holds-too": "v3-8", **QUEUED}.items():
            node = {
                "acceleratorType": kind if kind != "v2-128" else "v2-32",
                "runtimeVersion": "tpu-vm-base",
            }
            spec = [{"parent": here, "nodeId": f"of-{name}", "node": node}]
            found.ok(
                "POST",
                f"/v2/{here}/queuedResources?queuedResourceId={name}",
                {"tpu": {"nodeSpec": spec}},
            )
            found.step(1)
        own = f"/podyard/v1/{here}/reservations?reservationId="
        for name, generation, size in (("lab", "v2", 8), ("class", "v3", 4), ("zoo", "v2", 4)):
            found.call("POST", f"{own}{name}", {"generation": generation, "size": size})
        for number in range(3):
            found.database.run(partial(_add_agent, number))
        yield found


def _add_agent(number: int, uow: UnitOfWork) -> None:
    now = uow.real_now.plus_seconds(number)
    agents.store(
        uow, None, AgentRecord(f"rack-{number}", "127.0.0.1", 4, 4, 1, 1, now, now, cores=number)
    )


def _rows(html: str) -> list[str]:
    return [
        re.sub(r"<[^>]+>", "", text).strip()
        for text in re.findall(r'<th scope="row">(.*?)</th>', html, re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("queue/resources", ["big", "holds", "holds-too", "wish-1", "wish-2"]),
        ("queue/resources?sort=-name&state=ACTIVE", ["holds-too", "holds"]),
        ("queue/resources?type=v3-8", ["holds-too", "wish-2"]),
        ("queue/resources?q=WISH", ["wish-1", "wish-2"]),
        (
            "queue/resources?sort=-created&label=x",
            ["big", "wish-2", "wish-1", "holds-too", "holds"],
        ),
        ("queue?sort=-name", ["wish-2", "wish-1", "big"]),
        ("queue?type=v3-8", ["wish-2"]),
        ("queue?state=node", []),
        ("queue/reservations?sort=-size", ["lab", "zoo", "class"]),
        ("queue/reservations?type=v2", ["lab", "zoo"]),
        ("machines?sort=-cores", ["rack-2", "rack-1", "rack-0"]),
        ("machines?q=rack-1", ["rack-1"]),
        ("machines?label=x&sort=-seen", ["rack-2", "rack-1", "rack-0"]),
    ],
)
def test_other_lists_are_filtered_and_sorted_by_their_address(
    queues: Yard, address: str, names: list[str]
) -> None:
    assert _rows(_page(queues, address)) == names


def _link(html: str, rel: str) -> str:
    found = re.findall(rf'<a rel="{rel}" href="([^"]+)"', html)
    return found[0] if found else ""


def test_selected_rows_are_asked_about_and_those_refused_stop_no_others(yard: Yard) -> None:
    form = {
        CSRF_FIELD: csrf_token(yard.token),
        "verb": "stop",
        "pick": ["us-central1-f/plain-2", "us-central1-a/wide"],
    }
    asked = yard.http.post("/console/demo/nodes/actions", data=form)
    assert asked.status_code == 200 and "Stop 2 nodes?" in asked.text
    assert "READY" in _page(yard, "nodes?q=plain-2&state=READY")
    done = yard.http.post("/console/demo/nodes/actions", data={**form, "confirmed": "yes"})
    assert done.status_code == 409 and "1 of 2 nodes stopping" in done.text
    assert "only supported for nodes with one host" in unescape(done.text)
    yard.step(30)
    assert _names(_page(yard, "nodes?state=STOPPED")) == ["plain-2"]


def test_jobs_are_cancelled_together_and_the_next_page_says_so_once(yard: Yard) -> None:
    form = {CSRF_FIELD: csrf_token(yard.token), "verb": "cancel", "confirmed": "yes"}
    form["pick"] = ["us-central1-f/job-1", "us-central1-f/job-2"]  # type: ignore[assignment]
    done = yard.http.post("/console/demo/jobs/actions", data=form)
    assert done.status_code == 303
    assert "2 jobs cancelled." in yard.http.get(done.headers["location"]).text
    assert "2 jobs cancelled." not in yard.http.get(done.headers["location"]).text
    assert sorted(_names(_page(yard, "jobs?state=CANCELLED"))) == ["job-1", "job-2"]


def test_a_list_form_without_its_token_changes_nothing(yard: Yard) -> None:
    form, cookie = (
        {"verb": "delete", "pick": "europe-west4-a/dear", "confirmed": "yes"},
        {SESSION_COOKIE: yard.token},
    )
    answer = httpx.post(
        f"{yard.url}/console/demo/nodes/actions", data=form, cookies=cookie, trust_env=False
    )
    assert answer.status_code == 403
    assert _names(_page(yard, "nodes?q=dear")) == ["dear"]


def test_pages_are_compressed_for_who_takes_it(yard: Yard) -> None:
    small = yard.http.get("/console/demo/nodes", headers={"Accept-Encoding": "gzip"})
    plain = yard.http.get("/console/demo/nodes", headers={"Accept-Encoding": "identity"})
    assert small.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert int(small.headers["content-length"]) < len(plain.content) / 2
