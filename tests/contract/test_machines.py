"""Agents of machines over REST: who may join, what is refused with its reason on both sides,
draining and leaving."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from podyard import __version__
from podyard.base import reach
from podyard.control.platform.agents import JOIN_SECONDS, OVERLAP_SECONDS
from podyard.domain.agent import CLOCK_SECONDS_MAX, REPLICAS_PER_CORE_MAX
from podyard.http.guard import PRINCIPAL_CACHE_SECONDS
from tests.unit.control.gang import bearer
from tests.yard import ZONE, Yard, open_yard

MIB = 1 << 20
BIG = "europe-west4-a"  # where slices of several hosts are
AGENTS = "/podyard/v1/agents"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


def machine(yard: Yard, **changes: Any) -> dict[str, Any]:
    declared = {
        "release": __version__, "hostName": "rack-7", "place": "p1", "cores": 4, "coresMeasured": 4,
        "memoryBytes": 8192 * MIB, "memoryBytesMeasured": 8192 * MIB, "kernels": "x86_64-v3",
        "runtimes": [],
        "labels": {"rack": "7"}, "now": yard.clock.now().rfc3339(),
    }  # fmt: skip
    return declared | changes


@contextlib.contextmanager
def asking(
    yard: Yard, machine_changes: dict[str, Any] | None = None, **changes: Any
) -> Iterator[dict[str, Any]]:
    """Yield what a machine sends, while it answers at its address."""
    with reach.answering("127.0.0.1") as (port, number):
        body = {
            "replicasMax": 4, "hostsMax": 4, "bindAddress": "127.0.0.1", "pid": 7,
            "machine": machine(yard, **(machine_changes or {})),
            "probe": {"port": port, "number": number},
        }  # fmt: skip
        yield body | changes


def token(yard: Yard, **body: Any) -> str:
    return str(yard.ok("POST", f"{AGENTS}:createJoinToken", body)["token"])


def join(yard: Yard, name: str = "second", secret: str = "", **changes: Any) -> httpx.Response:
    with asking(yard, **changes) as body:
        return yard.bare.post(
            f"{AGENTS}:join", json={**body, "token": secret or token(yard), "name": name}
        )


class Joined:
    """A pretended agent that has joined."""

    def __init__(self, yard: Yard, name: str = "second", **changes: Any) -> None:
        answer = join(yard, name, **changes)
        assert answer.status_code == 200, answer.text
        self.yard, self.name, self.changes = yard, name, changes
        self.token = answer.json()["token"]
        self.fence = 0

    def post(self, verb: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.yard.bare.post(f"{AGENTS}/{self.name}:{verb}", json=body, headers=headers)

    def register(self, **changes: Any) -> httpx.Response:
        with asking(self.yard, **{**self.changes, **changes}) as body:
            answer = self.post("register", body)
        self.fence = answer.json().get("fence", self.fence)
        return answer

    def sync(self) -> httpx.Response:
        return self.post("sync", {"fence": self.fence, "replicas": []})


def message(answer: httpx.Response, status: int, name: str) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["status"]) == (status, name), answer.text
    return str(error["message"])


def shown(yard: Yard, name: str = "second") -> dict[str, Any]:
    return yard.ok("GET", f"{AGENTS}/{name}")


def test_a_machine_joins_registers_and_is_described(yard: Yard) -> None:
    agent = Joined(yard)
    assert shown(yard)["state"] == "GONE"  # nothing is placed on it before its process speaks
    assert agent.register().status_code == 200
    found = shown(yard)
    assert (found["state"], found["hostName"], found["cores"]) == ("READY", "rack-7", 4)
    assert (found["labels"], found["joinedBy"], found["problem"]) == (
        {"rack": "7"},
        "owner@podyard.local",
        "",
    )
    yard.clock.advance(60)
    assert shown(yard)["state"] == "GONE"
    assert agent.sync().status_code == 200
    assert shown(yard)["state"] == "READY"


def test_a_join_token_works_once_and_not_for_ever(yard: Yard) -> None:
    secret = token(yard)
    assert join(yard, "second", secret).status_code == 200
    text = message(join(yard, "third", secret), 400, "FAILED_PRECONDITION")
    assert text.startswith("agent second has used this join token at 2026-03-01T00:00:00Z")
    late = token(yard)
    yard.clock.advance(JOIN_SECONDS + 1)
    assert "the join token expired at" in message(
        join(yard, "third", late), 400, "FAILED_PRECONDITION"
    )
    short = token(yard, ttl="30s")
    yard.clock.advance(31)
    assert "expired" in message(join(yard, "third", short), 400, "FAILED_PRECONDITION")
    assert "is not known" in message(join(yard, "third", "pdj_guess"), 401, "UNAUTHENTICATED")
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{AGENTS}:createJoinToken", {"ttl": "30d"})


def test_what_a_refused_machine_has_sent_leaves_its_token_good(yard: Yard) -> None:
    secret = token(yard)
    refusals = {
        "podyard==": ({"machine_changes": {"release": "9.9.0"}}, "FAILED_PRECONDITION"),
        "ahead of the API's": (
            {
                "machine_changes": {
                    "now": yard.clock.now().plus_seconds(CLOCK_SECONDS_MAX + 5).rfc3339()
                }
            },
            "FAILED_PRECONDITION",
        ),
        "64 cores and has 4": ({"machine_changes": {"cores": 64}}, "INVALID_ARGUMENT"),
        "bytes of memory": ({"machine_changes": {"memoryBytes": 9000 * MIB}}, "INVALID_ARGUMENT"),
        f"at most {REPLICAS_PER_CORE_MAX * 4}": ({"replicasMax": 1000}, "INVALID_ARGUMENT"),
        "does not answer": ({"probe": {"port": 1, "number": "0" * 16}}, "FAILED_PRECONDITION"),
        "is not an IP address": ({"bindAddress": "rack-7.example"}, "INVALID_ARGUMENT"),
        "none that other machines": ({"bindAddress": "0.0.0.0"}, "INVALID_ARGUMENT"),
    }
    for part, (changes, name) in refusals.items():
        assert part in message(join(yard, "second", secret, **changes), 400, name)
    with reach.answering("127.0.0.1") as (port, _):
        other = {"port": port, "number": "0" * 16}
        text = message(join(yard, "second", secret, probe=other), 400, "FAILED_PRECONDITION")
        assert "another program answers" in text
    assert join(yard, "second", secret).status_code == 200


def test_two_machines_cannot_have_one_name(yard: Yard) -> None:
    first = Joined(yard)
    first.register()
    assert "an agent named second exists already (rack-7)" in message(
        join(yard), 409, "ALREADY_EXISTS"
    )
    assert "the platform's own agent" in message(join(yard, "local"), 400, "INVALID_ARGUMENT")
    # Nor one identity, copied to another machine: the second is refused, and the first goes on and
    # shows it.
    copied = first.register(machine_changes={"place": "p2", "hostName": "rack-8"})
    assert "runs already, as process 7 of rack-7" in message(copied, 400, "FAILED_PRECONDITION")
    assert first.sync().status_code == 200
    assert "refused to a process at 127.0.0.1: agent second runs already" in shown(yard)["problem"]
    # The same machine starts it again at once; another one does once the first is silent.
    assert first.register().json()["fence"] == 2
    yard.clock.advance(60)
    assert first.register(machine_changes={"place": "p2"}).json()["fence"] == 3


def test_an_older_process_of_a_name_is_refused(yard: Yard) -> None:
    agent = Joined(yard)
    agent.register()
    old = agent.fence
    agent.register()
    answer = agent.post("sync", {"fence": old, "replicas": []})
    assert "has registered again" in message(answer, 409, "ABORTED")


def test_a_clock_that_drifts_is_warned_of_and_then_refused(yard: Yard) -> None:
    agent = Joined(yard)
    behind = yard.clock.now().plus_seconds(-60).rfc3339()
    assert agent.register(machine_changes={"now": behind}).json()["warnings"] == [
        "its clock is 60 s behind the API's: set it by NTP"
    ]
    assert shown(yard)["problem"] == "its clock is 60 s behind the API's: set it by NTP"
    far = yard.clock.now().plus_seconds(-400).rfc3339()
    assert "400 s behind" in message(
        agent.register(machine_changes={"now": far}), 400, "FAILED_PRECONDITION"
    )
    assert (
        "refused to a process at 127.0.0.1: this machine's clock is 400 s behind"
        in shown(yard)["problem"]
    )


def test_a_removed_machine_has_no_token_and_can_join_again(yard: Yard) -> None:
    agent = Joined(yard)
    agent.register()
    yard.ok("POST", f"{AGENTS}/second:remove", {})
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS + 1)
    assert agent.sync().status_code == 401
    yard.refused(404, "NOT_FOUND", "GET", f"{AGENTS}/second")
    yard.refused(404, "NOT_FOUND", "POST", f"{AGENTS}/second:drain")
    again = Joined(yard)
    assert again.register().status_code == 200


def test_a_token_is_renewed_and_the_one_before_works_a_little_longer(yard: Yard) -> None:
    agent = Joined(yard)
    agent.register()
    old = agent.token
    agent.token = agent.post("rotate", {}).json()["token"]
    assert agent.token != old
    assert agent.sync().status_code == 200
    agent.token, new = old, agent.token
    assert agent.sync().status_code == 200
    yard.clock.advance(OVERLAP_SECONDS + PRINCIPAL_CACHE_SECONDS + 1)
    assert agent.sync().status_code == 401
    agent.token = new
    assert agent.sync().status_code == 200


def place(yard: Yard, job: str, zone: str = ZONE, **fields: Any) -> list[str]:
    """The agents that a job is placed on, by rank."""
    path = yard.jobs(zone)
    yard.ok(
        "POST", f"{path}?jobId={job}", {"recipe": "digits-cnn", "node": "n", "steps": 10, **fields}
    )
    yard.step()
    found: list[str] = yard.ok("GET", f"{path}/{job}:attempts")["attempts"][-1]["agents"]
    return found


def test_machines_whose_kernels_differ_are_not_mixed(yard: Yard) -> None:
    yard.create("n", "v2-32", BIG)
    Joined(yard, "amd", replicasMax=3).register()
    Joined(
        yard, "intel", machine_changes={"kernels": "x86_64-v4", "place": "p2"}, replicasMax=3
    ).register()
    text = yard.refused(
        400, "FAILED_PRECONDITION", "POST", f"{yard.jobs(BIG)}?jobId=j",
        {"recipe": "digits-cnn", "node": "n", "steps": 10},
    )  # fmt: skip
    assert "can run at most 3" in text
    Joined(yard, "amd-2", machine_changes={"place": "p3"}, replicasMax=1).register()
    assert place(yard, "j", BIG) == ["amd", "amd", "amd", "amd-2"]


def test_a_recipe_needs_a_machine_with_jax_and_a_program_does_not(yard: Yard) -> None:
    yard.create("n")
    bare = {"kernels": "x86_64-v3, jaxlib absent, numpy 2.3.0"}
    Joined(yard, "bare", machine_changes=bare).register()
    recipe = {"recipe": "digits-cnn", "node": "n", "steps": 10}
    text = yard.refused(400, "FAILED_PRECONDITION", "POST", f"{yard.jobs()}?jobId=refused", recipe)
    assert "pip install 'podyard[engine]'" in text
    Joined(yard, "full", machine_changes={"place": "p2"}).register()
    assert place(yard, "j") == ["full"]


def test_a_drained_machine_gets_nothing_new_and_keeps_what_runs(yard: Yard) -> None:
    yard.create("n")
    yard.create("m")
    first = Joined(yard, "first")
    first.register()
    assert place(yard, "runs") == ["first"]
    assert yard.ok("POST", f"{AGENTS}/first:drain")["state"] == "DRAINING"
    assert len(first.sync().json()["replicas"]) == 1
    assert first.sync().json()["replicas"][0]["desired"] == "RUN"
    yard.refused(
        400, "FAILED_PRECONDITION", "POST", f"{yard.jobs()}?jobId=waits",
        {"recipe": "digits-cnn", "node": "m", "steps": 10},
    )  # fmt: skip
    second = Joined(yard, "second", machine_changes={"place": "p2"})
    second.register()
    assert place(yard, "next", node="m") == ["second"]
    assert "runs 1 replicas and 0 hosts: drain it" in yard.refused(
        400, "FAILED_PRECONDITION", "POST", f"{AGENTS}/first:remove", {}
    )
    assert yard.ok("POST", f"{AGENTS}/first:resume")["state"] == "READY"
    assert yard.ok("POST", f"{AGENTS}/first:resume")["state"] == "READY"


def test_a_machine_that_is_removed_by_force_loses_its_gang(yard: Yard) -> None:
    yard.create("n")
    first = Joined(yard, "first")
    first.register()
    place(yard, "runs")
    (replica,) = first.sync().json()["replicas"]
    yard.ok("POST", f"{AGENTS}/first:remove", {"force": True})
    for _ in range(40):
        yard.step(0.5)
    job = yard.ok("GET", f"{yard.jobs()}/runs")
    assert (job["state"], job["preemptions"]) == ("RECOVERING", 1), job
    path = f"/podyard/v1/replicas/{replica['replica']}:report"
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS + 1)
    answer = yard.bare.post(
        path, json={"fence": replica["fence"], "state": "RUNNING"}, headers=bearer(replica)
    )
    assert answer.status_code == 401


def test_the_platforms_own_agent_is_drained_but_never_removed(yard: Yard) -> None:
    headers = {"Authorization": f"Bearer {(yard.data / 'agent-local.token').read_text().strip()}"}
    body = {"replicasMax": 4, "hostsMax": 4, "bindAddress": "127.0.0.1", "pid": 1}
    assert yard.bare.post(f"{AGENTS}/local:register", json=body, headers=headers).status_code == 200
    assert yard.ok("POST", f"{AGENTS}/local:drain")["state"] == "DRAINING"
    yard.refused(400, "FAILED_PRECONDITION", "POST", f"{AGENTS}/local:remove", {"force": True})


def test_the_answering_side_tells_its_number_to_who_dials() -> None:
    with reach.answering("127.0.0.1") as (port, number):
        assert reach.why_not("127.0.0.1", port, number) == ""
        assert "another program" in reach.why_not("127.0.0.1", port, "0" * 22)
    assert "does not answer" in reach.why_not("127.0.0.1", port, number)
