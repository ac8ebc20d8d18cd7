"""The form that submits a job: what its fields ask for, and the commands that do the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import invalid
from podyard.base.training_settings import TrainingSettings
from podyard.domain.job import Elastic, JobRequest
from podyard.domain.job_fields import (
    JOB_FIELDS,
    FieldKind,
    FormInput,
    JobField,
    Section,
    inputs,
    job_body,
)
from podyard.domain.node import NodeSpec
from podyard.domain.recipes import RECIPES, Argument, FlagArgument, RecipeManifest, manifest_of
from podyard.domain.training import usual_rate
from podyard.web.kit import commands, forms

# the sections of the form that are drawn from the table
INPUTS = (Section.SOURCE, Section.MAIN, Section.MORE)


def job_request(fields: Mapping[str, str]) -> JobRequest:
    """The job that the fields ask for; an empty field is left to the recipe, or to the job that it
    starts from."""
    mode = fields.get("mode") or "train"
    given: dict[str, Any] = {"mode": mode}
    training: dict[str, Any] = {}
    for field, form in (pair for section in INPUTS for pair in inputs(section, mode)):
        value = _value(field, form, fields)
        parent, _, name = field.path.rpartition(".")
        if value is None:
            continue
        if parent == "elastic":
            given["elastic"] = Elastic(value, "keep", usual_rate("keep"))
        else:
            (training if parent else given)[name] = value
    if mode == "train":
        recipe = manifest_of(fields.get("recipe", ""))
        given |= {"recipe": recipe.name, "arguments": _arguments(recipe, fields)}
    return JobRequest(**given, training=TrainingSettings(**training))


def _value(field: JobField, form: FormInput, fields: Mapping[str, str]) -> Any:
    """None for an empty field that may be."""
    if field.kind is FieldKind.LABELS:
        return forms.labels(fields)
    if field.kind is FieldKind.WHOLE:
        return forms.whole_if_given(fields, field.name, form.label)
    text = fields.get(field.name, "").strip()
    try:
        return field.read(text) if field.read and (text or form.trains is False) else text or None
    except ValueError:
        raise invalid(f"{form.label} is {text!r}: it must be {form.notation}", field.wire) from None


def _arguments(recipe: RecipeManifest, fields: Mapping[str, str]) -> dict[str, Any]:
    """Those of the fields, the others by default but for flags: the recipe decides them."""
    arguments: dict[str, Any] = {}
    for name, argument in recipe.arguments.items():
        text = fields.get(f"arg.{name}", "").strip()
        if isinstance(argument, FlagArgument):
            if text:
                arguments[name] = {"true": True, "false": False}.get(text, text)
        elif isinstance(argument, Argument):
            read = forms.whole if argument.kind is int else forms.decimal
            arguments[name] = read(fields, f"arg.{name}", name, argument.default)  # type: ignore[arg-type]
        else:
            arguments[name] = text or argument.default
    return arguments


def submit_commands(
    project: str, zone: str, job_id: str, asked: JobRequest, node: str | NodeSpec
) -> list[commands.Command]:
    """Return what differs from the recipe's defaults is said; the rest the server fills in as the
    form did."""
    flags, switches, body = commands.job_target(node)
    flags = [("--project", project), ("--zone", zone), *flags]
    recipe = None if asked.recipe is None else RECIPES[asked.recipe]
    in_form = ((field, field.value_of(asked)) for field in JOB_FIELDS if field.form)
    settings = [
        (field, value)
        for field, value in in_form
        if value not in (None, {}, field.usual_of(recipe))
    ]
    flags += [(field.option, field.as_text(value)) for field, value in settings]
    body |= job_body(settings)
    known = {} if recipe is None else recipe.arguments
    changed = {key: value for key, value in asked.arguments.items() if value != known[key].default}
    flags += [("--arg", f"{name}={json.dumps(value)}") for name, value in changed.items()]
    if changed:
        body["arguments"] = changed
    path = f"/podyard/v1/projects/{project}/locations/{zone}/jobs"
    names = [job_id] if job_id else []
    return [
        commands.Command(
            "podyard", commands.line(["podyard", "job", "submit", *names], flags, switches)
        ),
        commands.Command("curl", commands.post(path, {"jobId": job_id} if job_id else {}, body)),
    ]
