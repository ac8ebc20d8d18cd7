"""The fields of a job as users write them: one row for each.

From a row come the option of `podyard job submit`, its place in the body of POST .../jobs, the
input of the console's form with the commands that it shows, and the limits. The types are those of
`JobRequest` and of the API's `JobMessage`; tests/unit/test_job_fields.py holds the three together.
The module imports no records: the command line starts with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.durations import parse_duration
from podyard.base.errors import invalid_field
from podyard.base.spelling import camel_case

INT32_MAX = 2**31 - 1
STEPS_MAX = 10_000_000  # a metric row per step: beyond this a job is a mistake in a unit
PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = -1000, 0, 1000
SECONDS_MAX = 10 * 366 * 86_400  # ten years: beyond this a time limit is a mistake in a unit
RETRY_SECONDS_MAX = 3600  # by then people have looked
# slices of one job, as of `podyard run --slices`: they are made in one unit of work
NUM_NODES_MAX = 64
DEFAULT_MAX_FAILURES = 3
DEFAULT_MAX_PREEMPTIONS = 100  # a preemption is the platform's doing, so that a job may take many


class FieldKind(StrEnum):
    WHOLE = "WHOLE"
    TEXT = "TEXT"
    SWITCH = "SWITCH"
    LABELS = "LABELS"
    ARGUMENTS = "ARGUMENTS"


class Section(StrEnum):
    """A part of the console's form. SELECT: that on which the rest depends."""

    SELECT = "SELECT"
    SOURCE = "SOURCE"
    MAIN = "MAIN"
    MORE = "MORE"


def _same(value: Any) -> Any:
    return value


class FormInput(NamedTuple):
    """An input of the console's form. `trains`: for mode train only (True), for the other modes
    only (False), or always (None). `unit`: of the label. `placeholder`: instead of the usual value.
    `notation`: what an error says it must be.
    """

    section: Section
    label: str = ""
    trains: bool | None = None
    unit: str = ""
    placeholder: str = ""
    hint: str = ""
    notation: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class JobField:
    """`path`: its name in `JobRequest`, with a dot for a field of training or elastic. `flag`: of
    an option that is
    not named like the path's last part. `read`: of a text with a notation, raises ValueError;
    `as_text` and `as_json` write what it returns. `limits`: the least and the greatest;
    `is_ranged`: the option checks them, too. `usual`: the value if it is not given, where no
    recipe's `default_...` says otherwise.
    """

    path: str
    help: str
    kind: FieldKind = FieldKind.WHOLE
    flag: str = ""
    short: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None
    as_text: Callable[[Any], str] = str
    as_json: Callable[[Any], Any] = _same
    limits: tuple[int, int] | None = None
    is_ranged: bool = False
    usual: int | str | None = None
    form: FormInput | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def option(self) -> str:
        return self.flag or "--" + self.name.replace("_", "-")

    @property
    def wire(self) -> str:
        """The path as REST spells it: training.keepCheckpoints."""
        return camel_case(self.path)

    def usual_of(self, recipe: object | None) -> int | str | None:
        usual: int | str | None = getattr(recipe, f"default_{self.name}", self.usual)
        return usual

    def value_of(self, request: object) -> Any:
        """Of a `JobRequest`; None where it is left to the recipe, or to the job that it starts
        from."""
        value: Any = request
        for name in self.path.split("."):
            value = None if value is None else getattr(value, name)
        return value


def _read_start(text: str) -> tuple[str, int | None]:
    job_id, at, step = text.partition("@")
    if not job_id or (at and not (step.isascii() and step.isdigit())):
        raise ValueError
    return job_id, int(step) if at else None


def _start_text(start: tuple[str, int | None]) -> str:
    job_id, step = start
    return job_id if step is None else f"{job_id}@{step}"


def _start_json(start: tuple[str, int | None]) -> Mapping[str, Any]:
    job_id, step = start
    return {"job": job_id, **({} if step is None else {"step": step})}


def _read_seconds(text: str) -> int:
    seconds, rest = divmod(parse_duration(text), NANOS_PER_SECOND)
    if rest:
        raise ValueError(text)
    return seconds


def _seconds_text(seconds: int) -> str:
    return f"{seconds}s"


def _read_fallbacks(text: str) -> list[dict[str, Any]]:
    found = []
    for item in text.split(","):
        kind, at, place = item.partition("@")
        zone, slash, usage = place.partition("/")
        if not at or not zone or (slash and not usage):
            raise ValueError
        one = {"location": zone, "acceleratorType": kind, "usage": usage}
        found.append({name: value for name, value in one.items() if value})
    return found


def _labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _read_metric(text: str) -> tuple[dict[str, Any], list[str]]:
    """The metric, which of its values are better if that is said, and what else stands there."""
    metric, *rest = text.split(":")
    if rest and rest[0] in ("min", "max"):
        return {"metric": metric, "mode": rest[0]}, rest[1:]
    return {"metric": metric}, rest


def _read_best(text: str) -> dict[str, Any]:
    best, rest = _read_metric(text)
    if rest:
        raise ValueError
    return best


def _read_stopping(text: str) -> dict[str, Any]:
    stopping, rest = _read_metric(text)
    patience, min_delta = (*rest, "0")[:2] if len(rest) < 3 else ("", "")
    return {**stopping, "patience": int(patience), "minDelta": float(min_delta)}


_TEXT, _SWITCH = FieldKind.TEXT, FieldKind.SWITCH
_COUNT = (0, INT32_MAX)
_LEAST_ONE = (1, INT32_MAX)

JOB_FIELDS = (
    JobField("recipe", "Recipe to run.", _TEXT, form=FormInput(Section.SELECT)),
    JobField(
        "program",
        "Program to run: MODULE.py in the agents' programs folder.",
        _TEXT,
        metavar="MODULE:FUNCTION",
    ),
    JobField(
        "run.command", "Shell command to run on every host of the slice.", _TEXT, metavar="TEXT"
    ),
    JobField(
        "run.source",
        "Program to run on every host of the slice: "
        "a file, a folder, an archive or a gs:// object.",
        _TEXT,
        flag="--run",
        metavar="PATH",
    ),
    JobField(
        "run.entry", "File of --run to start (default: train.py or main.py).", _TEXT, metavar="FILE"
    ),
    JobField(
        "run.module", "Module to start, as python -m does.", _TEXT, short="-m", metavar="MODULE"
    ),
    JobField(
        "run.setup",
        "Shell command to run on every host before the program starts.",
        _TEXT,
        metavar="TEXT",
    ),
    JobField(
        "run.output",
        "Where the program writes its results (default: the job's own gs:// folder).",
        _TEXT,
        flag="--output-dir",
        metavar="URI",
    ),
    JobField(
        "start_from",
        "Job to continue from: run its recipe or program from its checkpoint.",
        _TEXT,
        metavar="JOB[@STEP]",
        read=_read_start,
        as_text=_start_text,
        as_json=_start_json,
        form=FormInput(
            Section.SOURCE,
            "Start from",
            trains=False,
            placeholder="job or job@step",
            hint="A job of the same zone. What it ran, its arguments and its seed are taken from "
            "it, and its newest "
            "checkpoint unless a step is named.",
            notation="a job, or job@step",
        ),
    ),
    JobField("node", "Node to run on. It must be READY.", _TEXT),
    JobField(
        "accelerator_type", "Create a node of this type for the job, instead of --node.", _TEXT
    ),
    JobField(
        "runtime_version",
        "Runtime version of the created node (default: the usual one of its generation).",
        _TEXT,
        flag="--version",
    ),
    JobField(
        "num_nodes",
        "Create this number of nodes (slices) of the type, and run the program on all hosts of "
        "all of them.",
        limits=(1, NUM_NODES_MAX),
        is_ranged=True,
        usual=1,
    ),
    JobField("scheduling_config.preemptible", "Make the created node preemptible.", _SWITCH),
    JobField("scheduling_config.spot", "Make the created node a spot node.", _SWITCH),
    JobField(
        "fallbacks",
        "Other places for the created node, tried in this order when there is no capacity: "
        "@us-central1-b, "
        "v2-8@europe-west4-a or v3-8@us-central1-a/spot.",
        _TEXT,
        flag="--fallback",
        metavar="[TYPE]@ZONE[/USAGE],...",
        read=_read_fallbacks,
    ),
    JobField(
        "keep_node",
        "Keep the created node when the job ends; without it the node is deleted.",
        _SWITCH,
        flag="--keep",
    ),
    JobField(
        "autostop_seconds",
        "Delete the created node only when no job has run on it for this time, such as 10m.",
        _TEXT,
        flag="--autostop",
        metavar="DURATION",
        read=_read_seconds,
        as_text=_seconds_text,
        limits=(0, SECONDS_MAX),
        usual=0,
    ),
    JobField(
        "mode",
        "Mode: train, evaluate, predict or export.",
        _TEXT,
        usual="train",
        form=FormInput(Section.SELECT),
    ),
    JobField(
        "steps",
        "Number of training steps.",
        limits=(1, STEPS_MAX),
        form=FormInput(Section.MAIN, "Steps", trains=True),
    ),
    JobField(
        "global_batch",
        "Examples per step, over the whole slice.",
        form=FormInput(
            Section.MAIN, "Global batch", trains=True, hint="A multiple of the slice's cores."
        ),
    ),
    JobField(
        "seed",
        "Random seed.",
        limits=_COUNT,
        usual=0,
        form=FormInput(Section.MORE, "Seed", trains=True),
    ),
    JobField(
        "checkpoint_every_steps",
        "Steps between checkpoints.",
        limits=_COUNT,
        form=FormInput(Section.MORE, "Checkpoint every", trains=True, unit="steps"),
    ),
    JobField(
        "max_failures",
        "Maximum number of failed attempts before the job fails.",
        limits=_COUNT,
        usual=DEFAULT_MAX_FAILURES,
        form=FormInput(Section.MORE, "Failures at most"),
    ),
    JobField(
        "max_preemptions",
        "Maximum number of preemptions before the job fails.",
        limits=_COUNT,
        usual=DEFAULT_MAX_PREEMPTIONS,
        form=FormInput(Section.MORE, "Preemptions at most"),
    ),
    JobField(
        "execution",
        "Execution: real computes, simulated takes modelled time only.",
        _TEXT,
        choices=("real", "simulated"),
        usual="real",
        form=FormInput(
            Section.MORE, "Execution", trains=True, hint="real, or simulated: modelled time only."
        ),
    ),
    JobField(
        "step_seconds",
        "Seconds of a simulated step (default: the estimate of the recipe or module).",
        _TEXT,
        metavar="SECONDS",
        read=float,
        form=FormInput(
            Section.MORE,
            "Seconds of a simulated step",
            trains=True,
            placeholder="estimated",
            notation="a number",
        ),
    ),
    JobField(
        "priority",
        "Priority: higher runs first (default: 0).",
        limits=(PRIORITY_MIN, PRIORITY_MAX),
        is_ranged=True,
        usual=PRIORITY_DEFAULT,
    ),
    JobField(
        "time_limit_seconds",
        "Time that all attempts may take together, such as 90m or 2d. Then the job saves its "
        "work and fails.",
        _TEXT,
        flag="--time-limit",
        metavar="DURATION",
        read=_read_seconds,
        as_text=_seconds_text,
        limits=(0, SECONDS_MAX),
        usual=0,
        form=FormInput(
            Section.MORE, "Time limit", placeholder="none", notation="a time such as 90m or 2d"
        ),
    ),
    JobField(
        "retry_delay_seconds",
        "Time between a failed attempt and the next, such as 30s. Each further failure doubles "
        "it, up to an hour.",
        _TEXT,
        flag="--retry-delay",
        metavar="DURATION",
        read=_read_seconds,
        as_text=_seconds_text,
        limits=(0, RETRY_SECONDS_MAX),
        usual=0,
        form=FormInput(
            Section.MORE,
            "Wait before a retry",
            placeholder="none",
            notation="a time such as 30s or 5m",
        ),
    ),
    JobField(
        "replica_processes",
        "Processes for the slice's hosts (default: one per host).",
        form=FormInput(Section.MORE, "Replica processes", placeholder="one per host"),
    ),
    JobField(
        "training.accumulation_steps",
        "Number of parts into which a core's batch is divided.",
        limits=_LEAST_ONE,
        usual=1,
        form=FormInput(
            Section.MORE,
            "Accumulation steps",
            trains=True,
            hint="Parts of a core's batch, one after another.",
        ),
    ),
    JobField("training.iterations_per_loop", "Steps per training loop.", limits=_LEAST_ONE),
    JobField(
        "training.evaluate_every_steps",
        "Steps between evaluations; 0 evaluates only at the end.",
        limits=_COUNT,
        usual=0,
        form=FormInput(
            Section.MORE, "Evaluate every", trains=True, unit="steps", placeholder="at the end"
        ),
    ),
    JobField(
        "training.early_stopping",
        "Metric and patience, for example val_loss:3.",
        _TEXT,
        metavar="METRIC[:min|max]:PATIENCE[:MIN_DELTA]",
        read=_read_stopping,
    ),
    JobField(
        "training.checkpoint_name",
        "Pattern of checkpoint names, for example {epoch:02d}-{val_loss:.2f}.",
        _TEXT,
        metavar="PATTERN",
    ),
    JobField(
        "training.keep_checkpoints", "Number of checkpoints to keep; 0 keeps all.", limits=_COUNT
    ),
    JobField(
        "training.best",
        "Keep the checkpoint of the best evaluation.",
        _TEXT,
        flag="--keep-best",
        metavar="METRIC[:min|max]",
        read=_read_best,
    ),
    JobField(
        "training.export_at_end", "Export the trained model at the end.", _SWITCH, flag="--export"
    ),
    JobField(
        "elastic.min_replicas",
        "Minimum number of processes of an elastic job.",
        flag="--elastic",
        metavar="MIN_REPLICAS",
        form=FormInput(
            Section.MORE,
            "Fewest processes",
            placeholder="all of them",
            hint="Elastic: the job goes on with as few as this while agents are away.",
        ),
    ),
    JobField(
        "elastic.batch",
        "Batch while fewer processes run: keep it or scale it down.",
        _TEXT,
        flag="--elastic-batch",
        choices=("keep", "scale"),
    ),
    JobField(
        "elastic.learning_rate",
        "Learning rate while fewer processes run.",
        _TEXT,
        flag="--elastic-learning-rate",
        choices=("keep", "linear"),
    ),
    JobField(
        "arguments",
        "Argument of the recipe or program; may be repeated.",
        FieldKind.ARGUMENTS,
        flag="--arg",
        metavar="NAME=VALUE",
    ),
    JobField(
        "labels",
        "Labels of the job.",
        FieldKind.LABELS,
        metavar="K=V,...",
        as_text=_labels_text,
        as_json=dict,
        form=FormInput(Section.MORE, "Labels", placeholder="team=vision, stage=test"),
    ),
)


def inputs(section: Section, mode: str) -> list[tuple[JobField, FormInput]]:
    """Return what a section of the form has for a mode; the fields of this mode alone first."""
    found = [
        (field, field.form)
        for field in JOB_FIELDS
        if field.form is not None and field.form.section is section
    ]
    shown = [(field, form) for field, form in found if form.trains in (None, mode == "train")]
    return sorted(shown, key=lambda pair: pair[1].trains is None)


def job_body(given: Iterable[tuple[JobField, Any]]) -> dict[str, Any]:
    """The body of POST .../jobs."""
    body: dict[str, Any] = {}
    for field, value in given:
        *parents, name = field.wire.split(".")
        target = body
        for parent in parents:
            target = target.setdefault(parent, {})
        target[name] = field.as_json(value)
    return body


def check_limits(record: object, parent: str = "") -> None:
    """Raises INVALID_ARGUMENT for a number of `record` outside its limits; `parent`: "training" for
    its settings."""
    for field in JOB_FIELDS:
        if field.limits is not None and field.path.rpartition(".")[0] == parent:
            (least, greatest), value = field.limits, getattr(record, field.name)
            if not least <= value <= greatest:
                raise invalid_field(
                    f"{field.wire} is {value}: it must be from {least} to {greatest}", field.path
                )
