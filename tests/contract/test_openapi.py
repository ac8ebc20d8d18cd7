"""The OpenAPI document is what the API does: each route is in it, and whatever is sent gets an
answer that it names.

`PODYARD_FUZZ_EXAMPLES` makes the run longer (docs/internals/wire.md). What is sent follows from it
alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks
from starlette.routing import BaseRoute, Mount

from podyard.api.app import create_app
from podyard.base.clock import ManualClock
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet_file import instant_fleet
from podyard.http import google
from podyard.settings import from_environment
from tests.contract.world import DOCUMENT, OPERATIONS, World, open_copy
from tests.long_runs import times
from tests.yard import START

EXAMPLES = int(os.environ.get("PODYARD_FUZZ_EXAMPLES", times(6, 12)))  # of each operation
TURN_EVERY = 10  # requests, after which the loop turns once
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
# Of our own routes only: Google's wire takes more forms of a message than the document spells out.
# That what is allowed is also done is not asked: most of it names what is not there.
OWN_CHECKS = [*CHECKS, checks.negative_data_rejection]


def _led(body: Any, right: Mapping[str, Any]) -> Any:
    """The body, in which about half of the fields that must name something do name what is
    there."""
    if isinstance(body, list):
        return [_led(item, right) for item in body]
    if not isinstance(body, dict):
        return body
    return {
        name: right[name]
        if type(value) is type(right.get(name)) and len(str(value)) % 2
        else _led(value, right)
        for name, value in body.items()
    }


@pytest.fixture(scope="module")
def worlds(prepared_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Gives the world, a new one when requests are going to change it."""
    with contextlib.ExitStack() as stack:
        found: list[World] = []

        def world(changed: bool) -> World:
            if changed or not found:
                stack.close()
                found[:] = [
                    stack.enter_context(open_copy(prepared_world, tmp_path_factory.mktemp("world")))
                ]
            return found[0]

        yield world


def _served(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(verb, path) of everything that an application serves, with what is mounted or included in
    it."""
    for route in routes:
        if isinstance(route, Mount):
            yield from _served(route.routes, prefix + route.path)
        elif hasattr(route, "original_router"):  # FastAPI keeps an included router whole
            yield from _served(route.original_router.routes, prefix)
        else:
            # Whatever else a route may be one day has no methods, and fails here.
            yield from ((verb, prefix + route.path) for verb in route.methods - {"HEAD"})  # type: ignore[attr-defined]


def test_every_route_is_in_the_document_and_the_other_way_round(tmp_path: Path) -> None:
    clock = ManualClock(START)
    database = Database(f"sqlite:///{tmp_path / 'podyard.db'}", clock)
    app = create_app(
        from_environment({"PODYARD_DATA": str(tmp_path)}), database, instant_fleet(), clock
    )
    # Google's other APIs have documents of their own; /sign-in and /o/oauth2 are pages.
    names = ("compute", *google.API_NAMES)
    documents = (f"/discovery/v1/apis/{name}/" for name in names)
    others = (
        "/compute/", "/google/", "/storage/", "/upload/", "/batch/", "/sign-in", "/o/oauth2/",
        *documents,
    )  # fmt: skip
    served = [(verb, path) for verb, path in _served(app.routes) if not path.startswith(others)]
    database.close()
    assert sorted(served) == sorted(OPERATIONS.values())
    assert len(served) == len(set(served))


def test_the_document_is_valid_openapi_and_served() -> None:
    SCHEMA.validate()
    assert DOCUMENT["openapi"].startswith("3.1")


def test_the_document_is_served_to_who_has_a_token(worlds: Any) -> None:
    yard = worlds(False).yard
    assert yard.ok("GET", "/openapi.json") == DOCUMENT
    assert yard.bare.get("/openapi.json").status_code == 401


@pytest.mark.parametrize("name", OPERATIONS)
def test_without_a_credential_nothing_but_what_is_public_answers(name: str, worlds: Any) -> None:
    verb, path = OPERATIONS[name]
    world: World = worlds(False)
    answer = world.yard.bare.request(verb, path.format(**world.parameters(path)))
    public = DOCUMENT["paths"][path][verb.lower()].get("security") == []
    assert (answer.status_code == 401) != public, answer.text
    assert str(answer.status_code) in DOCUMENT["paths"][path][verb.lower()]["responses"]


def test_another_verb_is_refused_with_those_that_are_possible(worlds: Any) -> None:
    world: World = worlds(False)
    for path, verbs in DOCUMENT["paths"].items():
        answer = world.yard.call("OPTIONS", path.format(**world.parameters(path)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, 405)
        # `:verb` may be the end of an id, too, where another method takes an id.
        assert {verb.upper() for verb in verbs} <= set(answer.headers["Allow"].split(", ")), path


@pytest.mark.parametrize(
    "text", ["%C2%B2", "AAAA", "eHg=", "LTE=", "wrI=", "MTAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMA=="]
)
def test_a_page_token_of_somebody_else_is_refused(text: str, worlds: Any) -> None:
    yard = worlds(False).yard
    for path in (
        f"{yard.jobs()}/j:metrics",
        f"{yard.jobs()}/j:logs",
        "/podyard/v1/projects/demo/events",
    ):
        yard.refused(400, "INVALID_ARGUMENT", "GET", f"{path}?pageToken={text}")


@pytest.mark.parametrize("text", ["%C2%B2", "-1", "x", "1" * 40, "1" * 5000])
def test_a_number_of_the_query_that_is_none_is_refused(text: str, worlds: Any) -> None:
    yard = worlds(False).yard
    for path in (
        yard.jobs(),
        yard.nodes(),
        f"{yard.jobs()}/j:metrics",
        "/podyard/v1/projects/demo/events",
    ):
        assert "page" in yard.refused(400, "INVALID_ARGUMENT", "GET", f"{path}?pageSize={text}")
    yard.refused(400, "INVALID_ARGUMENT", "GET", f"{yard.jobs()}/j:logs?worker={text}")


@pytest.mark.parametrize(
    "content",
    [
        b'{"labels": {"a": "\\ud800"}}',
        b'{"labels": {"\\udfff": "a"}}',
        b'{"description": "\\u0000"}',
        b'{"labels": {"a": "\xed\xa0\x80"}}',
        b'{"arguments": {"dropout": NaN}}',
        b'{"arguments": {"dropout": -1e999}}',
        '{"labels": {}}'.encode("utf-16"),
        b'{"steps": ' + b"9" * 5000 + b"}",
    ],
)
def test_json_that_cannot_be_stored_is_refused(content: bytes, worlds: Any) -> None:
    yard = worlds(False).yard
    for path in (
        f"{yard.jobs()}?jobId=other",
        f"{yard.nodes()}?nodeId=other",
        "/podyard/v1/tokens",
    ):
        answer = yard.http.post(path, content=content)
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert "JSON payload" in answer.json()["error"]["message"]


def test_a_url_with_nul_is_refused(worlds: Any) -> None:
    yard = worlds(False).yard
    for path in (
        f"{yard.nodes()}/%00",
        f"{yard.nodes()}?pageToken=%00",
        "/podyard/v1/projects/demo/usage?node=%00",
    ):
        yard.refused(400, "INVALID_ARGUMENT", "GET", path)


LINES = {"seq": 0, "lines": 1, "at": "2026-03-01T00:00:00Z", "millis": 0, "text": "o0 x\n"}


def test_numbers_that_no_column_holds_are_refused(worlds: Any) -> None:
    world, huge = worlds(False), 10**30
    point = {
        "step": 4,
        "metrics": {"loss": 1.0, "accuracy": 0.5},
        "wallSeconds": 0.1,
        "modelledSeconds": 0.1,
    }
    saved = {"step": huge, "name": "x", "sha256": "0" * 64}
    for news in (
        {"metrics": [{**point, "step": huge}]},
        {"evaluations": [{"step": huge, "metrics": {}}]},
        {"checkpoints": [saved]},
        {"pruned": [huge]},
        {"log": {**LINES, "seq": huge}},
        {"log": {**LINES, "at": "9999-12-31T23:59:59Z"}},
        {"log": {**LINES, "lines": 2}},
        {"log": {**LINES, "text": "o0 x"}},
    ):
        assert world.gang.report(world.replica, **news).status_code == 400
    assert world.gang.report(world.replica, summary={"resumedStep": -huge}).status_code == 200
    about = {"replicasMax": 1, "hostsMax": 1, "bindAddress": "x", "pid": huge}
    answer = world.yard.bare.post(
        "/podyard/v1/agents/local:register", json=about, headers=world.agent_headers
    )
    assert answer.status_code == 400


def test_what_a_program_printed_is_kept_with_a_mark_for_what_cannot_be(worlds: Any) -> None:
    world = worlds(False)
    text = "o0 a\0b\ud800c\U0001f600\n"
    assert world.gang.report(world.replica, log={**LINES, "text": text}).status_code == 200
    lines = world.yard.ok("GET", f"{world.yard.jobs()}/j:logs")["lines"]
    assert [entry["line"] for entry in lines] == ["a\ufffdb\ufffdc\U0001f600"]


@pytest.mark.slow
@pytest.mark.repeats
@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_is_sent_gets_an_answer_that_the_document_names(name: str, worlds: Any) -> None:
    verb, path = OPERATIONS[name]
    world: World = worlds(verb != "GET")
    operation, there = SCHEMA[path][verb], world.parameters(path)
    kinds = [
        operation.as_strategy(mode, **({"path_parameters": there} if real and there else {}))
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        for real in (True, True, False)
    ]
    session, sent = requests.Session(), 0

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(kinds))
    def send(case: Any) -> None:
        nonlocal sent
        if case.meta.generation.mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body = _led(case.body, {**world.right, "fence": world.fence(path)})
        response = case.call(base_url=world.yard.url, session=session, headers=world.headers(path))
        sent += 1
        if sent % TURN_EVERY == 0:
            world.yard.step()
        case.validate_response(response, checks=CHECKS if name.startswith("v") else OWN_CHECKS)

    with session:
        send()
