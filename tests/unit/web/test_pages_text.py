"""Templates, commands and forms, without a server."""

from __future__ import annotations

import re
import shlex

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.domain.fleet_file import instant_fleet
from podyard.web.jobs.form import job_request, submit_commands
from podyard.web.kit import commands, forms, render

EVIL = "<img src=x onerror=alert(1)>\"'"
NOW = PlatformTime.from_rfc3339("2026-11-21T04:00:00Z")


def test_templates_escape_and_hold_no_inline_code() -> None:
    names = render.templates().list_templates()
    assert len(names) > 10
    for name in names:
        source, _, _ = render.templates().loader.get_source(render.templates(), name)  # type: ignore[union-attr]
        assert "|safe" not in source, name
        assert not re.search(
            r"<script(?! type=\"module\" src=)|\son\w+=|\sstyle=|<style", source
        ), name
    assert "<img" not in render.fragment("gone.html", text=EVIL, url="/")
    assert "&lt;img" in render.fragment("gone.html", text=EVIL, url="/")


def test_commands_survive_the_shell() -> None:
    spec = forms.node_spec({"accelerator_type": "v2-8", "usage": "spot",
        "runtime_version": "tpu-vm-base",
                            "description": "it's $HOME `x` \\ \n",
                            "labels": "team=vision"})  # fmt: skip
    podyard, gcloud, curl = commands.create_node("demo", "us-central1-f", "a-node", spec)
    words = shlex.split(podyard.text.replace("\\\n", " "))
    assert words[:4] == ["podyard", "tpu", "create", "a-node"]
    assert "--spot" in words and "--labels=team=vision" in words
    assert "--description=it's $HOME `x` \\" in words
    exports, _, typed = gcloud.text.partition("\n")
    assert exports == 'eval "$(podyard env)"', "without them gcloud would ask Google"
    assert shlex.split(typed.replace("\\\n", " "))[:6] == [
        "gcloud", "compute", "tpus", "tpu-vm", "create", "a-node",
    ]  # fmt: skip
    assert '"schedulingConfig": {"spot": true}' in curl.text and "nodeId=a-node" in curl.text


def test_a_job_command_says_what_differs_from_the_defaults() -> None:
    spec = job_request({"recipe": "digits-cnn", "steps": "20", "arg.dropout": "0.5"})
    podyard, curl = submit_commands("demo", "us-central1-f", "", spec, "a-node")
    assert "--steps=20" in podyard.text and "--arg=dropout=0.5" in podyard.text
    assert "learningRate" not in podyard.text and "--seed" not in podyard.text
    assert '"arguments": {"dropout": 0.5}' in curl.text


def test_a_job_command_says_what_it_starts_from_and_how_it_trains() -> None:
    fields = {
        "mode": "evaluate",
        "start_from": "t@8",
        "recipe": "digits-cnn",
        "steps": "20",
        "min_replicas": "2",
    }
    podyard, curl = submit_commands("demo", "us-central1-f", "", job_request(fields), "a-node")
    words = shlex.split(podyard.text.replace("\\\n", " "))
    assert {"--mode=evaluate", "--start-from=t@8", "--elastic=2"} <= set(words)
    # they are that job's
    assert not any(word.startswith(("--recipe", "--steps", "--arg")) for word in words)
    assert (
        '"startFrom": {"job": "t", "step": 8}' in curl.text
        and '"elastic": {"minReplicas": 2}' in curl.text
    )
    fields = {"recipe": "digits-cnn", "accumulation_steps": "2", "evaluate_every_steps": "50"}
    podyard, curl = submit_commands("demo", "us-central1-f", "", job_request(fields), "a-node")
    assert "--accumulation-steps=2" in podyard.text and "--evaluate-every-steps=50" in podyard.text
    assert '"training": {"accumulationSteps": 2, "evaluateEverySteps": 50}' in curl.text


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"steps": "many"}, "Steps"), ({"seed": "1.5"}, "Seed"), ({"arg.dropout": "x"}, "dropout"),
     ({"mode": "export"}, "Start from"), ({"mode": "export", "start_from": "j@x"}, "Start from"),
     ({"recipe": "nope"}, "nope"), ({"labels": "team"}, "key=value"), ({"steps": "²"}, "Steps")],
)  # fmt: skip
def test_a_wrong_field_is_named(fields: dict[str, str], word: str) -> None:
    with pytest.raises(PodyardError, match=word):
        job_request({"recipe": "digits-cnn", **fields})


def test_choices_fit_the_zone_and_show_the_price() -> None:
    choice = forms.choose(
        instant_fleet(), {"zone": "us-central2-b", "accelerator_type": "v2-8"}, NOW
    )
    assert choice.accelerator_type.startswith("v4-")
    assert choice.price is not None and choice.price.total_nanos_per_hour > 0
    first = forms.choose(instant_fleet(), {}, NOW)
    assert (first.zone, first.accelerator_type) == (forms.DEFAULT_ZONE, forms.DEFAULT_TYPE)
