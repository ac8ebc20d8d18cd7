"""The table of a job's fields names what the records and the API's messages have."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from podyard.api.job_messages import ElasticMessage, JobMessage, RunMessage, TrainingMessage
from podyard.base.errors import PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.domain.job import Elastic, JobRequest, JobSpec
from podyard.domain.job_fields import JOB_FIELDS, JobField, Section, check_limits, job_body
from podyard.domain.user_program import UserProgram

NOT_OF_THE_REQUEST = {"program", "node", "accelerator_type", "runtime_version", "scheduling_config"}
RECORDS = {"": JobRequest, "training": TrainingSettings, "elastic": Elastic, "run": UserProgram}
MESSAGES: dict[str, type[BaseModel]] = {
    "": JobMessage,
    "training": TrainingMessage,
    "elastic": ElasticMessage,
    "run": RunMessage,
}
BY_PATH = {field.path: field for field in JOB_FIELDS}


@pytest.mark.parametrize("field", JOB_FIELDS, ids=lambda field: field.path)
def test_a_row_is_a_field_of_the_request_and_of_the_message(field: JobField) -> None:
    parent, _, name = field.path.rpartition(".")
    if field.path.partition(".")[0] not in NOT_OF_THE_REQUEST:
        assert name in {item.name for item in dataclasses.fields(RECORDS[parent])}
    message, member = (MESSAGES[parent], name) if parent in MESSAGES else (JobMessage, parent)
    assert member in message.model_fields
    assert field.wire == ".".join(to_camel(part) for part in field.path.split("."))
    assert field.form is None or field.form.label or field.form.section is Section.SELECT
    assert field.read is None or field.metavar, "errors say what the notation is"
    if field.limits is not None:
        holder = JobSpec if not parent else RECORDS[parent]
        assert name in {item.name for item in dataclasses.fields(holder)}


def test_names_in_the_form_and_options_are_unique() -> None:
    assert len({field.option for field in JOB_FIELDS}) == len(JOB_FIELDS)
    shown = [field.name for field in JOB_FIELDS if field.form]
    assert len(set(shown)) == len(shown)


def test_usual_values_are_those_of_the_records() -> None:
    usual = {"": JobRequest(), "training": TrainingSettings()}
    for field in JOB_FIELDS:
        parent, _, name = field.path.rpartition(".")
        # a recipe's seed is 0; a job that starts from one has its
        if field.usual is not None and field.path != "seed":
            assert getattr(usual[parent], name) == field.usual, field.path


def test_a_body_nests_what_belongs_together() -> None:
    given = {
        "start_from": ("a", 3),
        "training.keep_checkpoints": 2,
        "training.export_at_end": True,
        "labels": {"a": "b"},
    }
    assert job_body((BY_PATH[path], value) for path, value in given.items()) == {
        "startFrom": {"job": "a", "step": 3},
        "training": {"keepCheckpoints": 2, "exportAtEnd": True},
        "labels": {"a": "b"},
    }


def test_a_number_outside_its_limits_is_named_as_the_api_spells_it() -> None:
    with pytest.raises(
        PodyardError, match=r"^training\.keepCheckpoints is -1: it must be from 0 to 2147483647$"
    ):
        check_limits(TrainingSettings(keep_checkpoints=-1), "training")
    check_limits(TrainingSettings(), "training")
