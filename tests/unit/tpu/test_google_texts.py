"""Names, texts and JSON that are Google's stay as they were recorded, whatever is refactored behind
them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from podyard.api.tpu import discovery
from tests.unit.tpu import google_texts
from tests.unit.tpu.google_texts import (
    COMMAND,
    FILE,
    differences,
    without_own_words,
    without_sentences,
)

BYTES_MAX = 300_000
SHOWN_MAX = 20


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return google_texts.read()


def test_nothing_of_googles_has_changed(recorded: dict[str, Any]) -> None:
    # Through JSON, as the file: numbers of enums and pairs become what JSON makes of them.
    changed = list(differences(recorded, json.loads(json.dumps(google_texts.collect()))))
    if changed:
        shown = "\n".join(changed[:SHOWN_MAX])
        pytest.fail(
            f"{len(changed)} of Google's names, texts or answers have changed:\n{shown}\n"
            f"If Google's have changed, record them with `{COMMAND}`, and cite the reference page "
            "in the commit."
        )


def test_the_file_is_small_and_has_every_kind(recorded: dict[str, Any]) -> None:
    assert FILE.stat().st_size < BYTES_MAX
    assert set(recorded) == {
        "codes", "enums", "messages", "methods", "discovery", "descriptors", "texts", "types",
        "metadata", "compute",
        "answers",
    }  # fmt: skip
    assert recorded["codes"]["RESOURCE_EXHAUSTED"] == [8, 429]
    assert recorded["enums"]["v2"]["Node.State"]["PREEMPTED"] == 11
    assert recorded["texts"]["stockout"].startswith(
        'There is no more capacity in the zone "europe-west4-a"; you can'
    )
    assert recorded["answers"]["stockout"][1]["error"]["code"] == 8
    assert [recorded["answers"][name][0] for name in ("quota", "already exists", "not found",
        "no such token")] == [
        429, 409, 404, 401,
    ]  # fmt: skip
    assert set(recorded["discovery"]) == {"v1", "v1alpha1", "v2", "v2alpha1"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("enums", "v2", "Node.State", "PREEMPTED"), 12),
        (("messages", "v2", "Node", "acceleratorType"), "string 6"),
        (
            ("methods", "v2", "nodes.stop"),
            "StopNode POST {name=L/nodes}:halt * Operation tpu.nodes.stop",
        ),
        (("texts", "reservation"), "Not enough reserved capacity."),
        (("discovery", "v2", "schemas"), "0" * 64),
        (("descriptors", "v2"), "0" * 64),
        (("answers", "quota"), [400, {}]),
    ],
    ids=lambda value: "-".join(value[:1]) if isinstance(value, tuple) else "",
)
def test_a_change_is_found_and_named(
    recorded: dict[str, Any], path: tuple[str, ...], value: object
) -> None:
    changed = copy.deepcopy(recorded)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    found = list(differences(recorded, changed))
    assert len(found) == 1
    assert found[0].startswith("/" + "/".join(path))
    del inner[path[-1]]
    assert [line.endswith(" is gone") for line in differences(recorded, changed)] == [True]
    assert [line.endswith(" is new") for line in differences(changed, recorded)] == [True]


def test_sentences_of_podyard_are_not_frozen() -> None:
    document = discovery.document("v2", "https://tpu.googleapis.com/")
    reworded = json.loads(json.dumps(document))
    reworded["description"] = "Other words."
    reworded["schemas"]["Node"]["description"] = "Other words."
    reworded["schemas"]["Node"]["properties"]["state"]["enumDescriptions"] = ["Other words."]
    assert without_sentences(reworded) == without_sentences(document) != document
    # A field that is called `description` is a name, and stays.
    assert "description" in without_sentences(document)["schemas"]["Node"]["properties"]
    del reworded["schemas"]["Node"]["properties"]["description"]
    assert without_sentences(reworded) != without_sentences(document)


def test_reasons_in_podyards_own_words_are_not_frozen() -> None:
    def answer(why: str, hint: str) -> dict[str, Any]:
        violation = {"field": "acceleratorType", "description": hint}
        return {
            "error": {
                "code": 8,
                "message": "There is no more capacity",
                "details": [
                    {"domain": "podyard", "metadata": {"why": why}},
                    {"fieldViolations": [violation]},
                ],
            }
        }

    assert without_own_words(answer("a", "b")) == without_own_words(answer("c", "d"))
    kept = without_own_words(answer("a", "There is no more capacity"))
    assert (
        kept["error"]["details"][1]["fieldViolations"][0]["description"]
        == "There is no more capacity"
    )
    other = {"error": {"code": 8, "message": "There is no capacity"}}
    assert without_own_words(other) == other
