"""Job files: the YAML of a task as SkyPilot's users know it.

Each field of SkyPilot's schemas of tasks and resources (sky/utils/schemas.py) is read here, has no
meaning for a job on TPUs and is passed over with a note, or is refused with its line and what to
use instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.domain import yaml_file
from podyard.domain.job_fields import NUM_NODES_MAX
from podyard.domain.yaml_file import YamlFile
from podyard.hardware.accelerator_types import parse

_INTERNAL = "it is for SkyPilot's own use: remove it"
_ALTERNATIVES = ("any_of", "ordered")
TASK_READ = frozenset(
    {"name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets"}
)  # fmt: skip
TASK_IGNORED = {
    "inputs": "sizes of inputs are not used",
    "outputs": "sizes of outputs are not used",
}
TASK_REFUSED = {
    "event_callback": "events go to webhooks: `podyard webhook` registers one",
    "service": "a job serves nothing: start the server on a node with `podyard tpu exec`",
    "pool": "there are no pools: submit the jobs with --parallel",
    "managed_secrets": "secrets are kept nowhere: pass them with --secret",
    "file_mounts_mapping": _INTERNAL,
    "config": "it changes SkyPilot, which does not run here: remove it",
    "volumes": "hosts have no volumes: read data from gs://",
    "volume_mounts": _INTERNAL,
    "api_server_access": "programs have PODYARD_URL: remove it",
    "_metadata": _INTERNAL,
}
RESOURCES_READ = frozenset(
    {
        "cloud", "region", "zone", "infra", "accelerators", "accelerator_args", "use_spot",
        "job_recovery", "labels",
        "priority", "autostop", "instance_type", "image_id", *_ALTERNATIVES,
    }
)  # fmt: skip
RESOURCES_IGNORED = {
    **dict.fromkeys(("cpus", "memory"), "each TPU type has its machine"),
    **dict.fromkeys(
        ("disk_size", "ephemeral_storage", "disk_tier", "local_disk"),
        "hosts have the machine's disk",
    ),
    "network_tier": "hosts of a slice have one network",
    "ports": "hosts of a slice reach each other at all ports",
    "_no_missing_accel_warnings": "there are no such warnings",
}
RESOURCES_REFUSED = {
    "max_hourly_cost": "set a budget for the project: `podyard budget set`",
    "priority_class": "use priority, a number",
    "volumes": "hosts have no volumes: read data from gs://",
    **dict.fromkeys(
        (
            "_docker_login_config",
            "_is_image_managed",
            "_requires_fuse",
            "_cluster_config_overrides",
        ),
        _INTERNAL,
    ),
}
AUTOSTOP_MINUTES = 5  # SkyPilot's own, where a task says only that it wants to be stopped
ACCELERATOR_ARGS = frozenset({"runtime_version", "tpu_vm", "tpu_name", "gcp_queued_resource"})
_OTHER_STORES = re.compile(r"^(s3|r2|cos|oci|azure|https?|nebius|vastdata|coreweave)://")
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class TaskPlace(NamedTuple):
    """The place where the job may run: a type in a zone, in a region, or anywhere ("")."""

    accelerator_type: str
    runtime_version: str
    zone: str
    region: str
    is_spot: bool


class JobFile(NamedTuple):
    """`places`: in the order in which they are tried. `workdir`, `mounts` (path on the host -> what
    is put there): of this machine, or gs://. `body`: all else, as POST .../jobs takes it. `notes`:
    what was passed over."""

    name: str
    places: tuple[TaskPlace, ...]
    workdir: str
    mounts: Mapping[str, str]
    body: dict[str, Any]
    notes: tuple[str, ...]


def read_job_file(
    text: str, name: str, env: Mapping[str, str], secrets: Mapping[str, str]
) -> JobFile:
    """`env`, `secrets`: variables that the command line sets. Raises INVALID_ARGUMENT with the
    file's name, the line
    and the reason."""
    return _Reader(yaml_file.parse(text, name, invalid), name).read(env, secrets)


class _Reader:
    def __init__(self, file: YamlFile, name: str) -> None:
        self._file = file
        self._name = name
        self._notes: list[str] = []

    def read(self, env: Mapping[str, str], secrets: Mapping[str, str]) -> JobFile:
        task = self._mapping(self._file.data, "")
        self._check_fields(task, "", TASK_READ, TASK_IGNORED, TASK_REFUSED)
        if not task.get("run"):
            raise self._wrong("run", "run is required: the commands that each host runs")
        count = 1 if task.get("num_nodes") is None else task["num_nodes"]
        if type(count) is not int or not 1 <= count <= NUM_NODES_MAX:
            text = (
                f"num_nodes is {count!r}: it must be from 1 to {NUM_NODES_MAX}; it "
                "counts slices, "
                "so a v3-32 is 1"
            )
            raise self._wrong("num_nodes", text)
        run: dict[str, Any] = {
            "command": self._text(task, "run", ""),
            "setup": self._text(task, "setup", ""),
            "env": self._variables(task, "envs", env, "--env"),
            "secrets": self._variables(task, "secrets", secrets, "--secret"),
        }
        resources = self._mapping(task.get("resources") or {}, "resources")
        body: dict[str, Any] = {
            "run": {name: value for name, value in run.items() if value},
            "maxFailures": 0,
        }
        body |= self._terms(resources) | ({"numNodes": count} if count > 1 else {})
        variables = {**run["env"], **run["secrets"]}
        return JobFile(
            self._job_name(task),
            self._places(resources),
            self._workdir(task, variables),
            self._mounts(task, variables),
            body,
            tuple(self._notes),
        )

    def _wrong(self, path: str, text: str) -> PodyardError:
        return invalid(f"{self._name}: line {self._file.line_of(path)}: {text}", path)

    def _mapping(self, value: object, path: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._wrong(path, f"{path or 'a job file'} must be a mapping, not {_kind(value)}")
        if odd := next((key for key in value if not isinstance(key, str)), None):
            raise self._wrong(path, f"{path or 'the file'} has a key that is not a text: {odd!r}")
        return value

    def _check_fields(
        self,
        value: Mapping[str, Any],
        path: str,
        read: frozenset[str],
        ignored: Mapping[str, str],
        refused: Mapping[str, str],
    ) -> None:
        for name in value:
            own = f"{path}.{name}" if path else name
            if name in refused:
                raise self._wrong(own, f"{own} is not supported: {refused[name]}")
            if name in ignored:
                self._notes.append(
                    f"line {self._file.line_of(own)}: {own} has no effect: {ignored[name]}"
                )
            elif name not in read:
                raise self._wrong(own, f"unknown field {own!r}: use {', '.join(sorted(read))}")

    def _text(self, value: Mapping[str, Any], name: str, path: str) -> str:
        found = value.get(name)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise self._wrong(f"{path}{name}", f"{path}{name} must be a text, not {_kind(found)}")
        return found

    def _variables(
        self, task: Mapping[str, Any], name: str, given: Mapping[str, str], option: str
    ) -> dict[str, str]:
        value = task.get(name) or {}
        if isinstance(value, list):
            raise self._wrong(
                name, f"{name} must be a mapping of names to values: secrets are kept nowhere"
            )
        found: dict[str, str] = {}
        for key, item in self._mapping(value, name).items():
            if isinstance(item, Mapping | list):
                raise self._wrong(
                    f"{name}.{key}", f"{name}.{key} must be a text, not {_kind(item)}"
                )
            if item is None and key not in given:
                raise self._wrong(
                    f"{name}.{key}", f"{name}.{key} has no value: pass it with {option} {key}=VALUE"
                )
            found[key] = str(item)
        return {**found, **given}

    def _job_name(self, task: Mapping[str, Any]) -> str:
        name = self._text(task, "name", "")
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")
        if name and not _NAME.fullmatch(plain):
            raise self._wrong("name", f"name is {name[:100]!r}: it must begin with a letter")
        if plain != name:
            self._notes.append(f"line {self._file.line_of('name')}: the job is called {plain}")
        return plain

    def _terms(self, resources: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        recovery = resources.get("job_recovery")
        if isinstance(recovery, Mapping):
            self._check_fields(
                recovery, "resources.job_recovery", frozenset({"max_restarts_on_errors"}),
                {"strategy": "a job whose node is taken back gets another one"},
                {"recover_on_exit_codes": "use max_restarts_on_errors"},
            )  # fmt: skip
            found["maxFailures"] = recovery.get("max_restarts_on_errors", 0)
        if (autostop := resources.get("autostop")) is not None:
            found["autostopSeconds"] = self._autostop_seconds(autostop)
        if (priority := resources.get("priority")) is not None:
            found["priority"] = priority
        if labels := resources.get("labels"):
            found["labels"] = {
                key: str(value) for key, value in self._mapping(labels, "resources.labels").items()
            }
        for name, value in found.items():
            if name != "labels" and type(value) is not int:
                raise self._wrong(
                    "resources", f"resources: {name} must be a whole number, not {_kind(value)}"
                )
        return found

    def _autostop_seconds(self, value: object) -> int:
        """`false`, minutes, a time such as 1h, or `idle_minutes` of a mapping; 0: the node goes
        with the job."""
        path = "resources.autostop"
        if isinstance(value, Mapping):
            self._check_fields(
                value, path, frozenset({"idle_minutes"}),
                {"down": "a node that was created for a job is deleted, not stopped",
                 "wait_for": "a node is idle while no job runs on it"},
                dict.fromkeys(("hook", "hook_timeout"), "put the commands at the end of run"),
            )  # fmt: skip
            value = value.get("idle_minutes", AUTOSTOP_MINUTES)
        if isinstance(value, bool):
            return 60 * AUTOSTOP_MINUTES if value else 0
        try:
            seconds = (
                parse_duration(f"{value}m" if str(value).isdigit() else str(value))
                / NANOS_PER_SECOND
            )
        except ValueError:
            raise self._wrong(
                path, f"{path} must be minutes or a time such as 1h, not {value!r}"
            ) from None
        return math.ceil(seconds)

    def _places(self, resources: Mapping[str, Any]) -> tuple[TaskPlace, ...]:
        named = [name for name in _ALTERNATIVES if resources.get(name) is not None]
        if len(named) == 2:
            raise self._wrong("resources.ordered", "resources has any_of and ordered: keep one")
        common = {name: value for name, value in resources.items() if name not in _ALTERNATIVES}
        if not named:
            return (self._place(resources, "resources"),)
        path = f"resources.{named[0]}"
        several = resources[named[0]]
        if not isinstance(several, list) or not several:
            raise self._wrong(path, f"{path} must be a list of resources")
        found = []
        for number, item in enumerate(several):
            own = f"{path}[{number}]"
            found.append(self._place({**common, **self._mapping(item, own)}, own, common))
        return tuple(found)

    def _place(
        self, resources: Mapping[str, Any], path: str, common: Mapping[str, Any] | None = None
    ) -> TaskPlace:
        def where(name: str) -> str:
            return (
                f"resources.{name}" if common is not None and name in common else f"{path}.{name}"
            )

        own = (
            resources if common is None else {n: v for n, v in resources.items() if n not in common}
        )
        self._check_fields(own, path, RESOURCES_READ, RESOURCES_IGNORED, RESOURCES_REFUSED)
        if common:
            self._check_fields(
                common, "resources", RESOURCES_READ, RESOURCES_IGNORED, RESOURCES_REFUSED
            )
        for name in ("cloud", "region", "zone", "infra", "instance_type", "image_id"):
            if resources.get(name) is not None and not isinstance(resources[name], str):
                raise self._wrong(
                    where(name), f"{where(name)} must be a text, not {_kind(resources[name])}"
                )
        if resources.get("instance_type") not in (None, "TPU-VM"):
            raise self._wrong(
                where("instance_type"),
                f"{where('instance_type')} is not supported: use accelerators",
            )
        if resources.get("image_id"):
            text = f"{where('image_id')} is not supported: use accelerator_args.runtime_version"
            raise self._wrong(where("image_id"), text)
        if type(resources.get("use_spot") or False) is not bool:
            raise self._wrong(where("use_spot"), f"{where('use_spot')} must be true or false")
        kind = self._type(resources.get("accelerators"), where("accelerators"))
        version = self._runtime_version(
            resources.get("accelerator_args"), where("accelerator_args")
        )
        cloud, region, zone = self._location(resources, where)
        if cloud not in ("", "*", "gcp"):
            raise self._wrong(
                where("cloud" if "cloud" in resources else "infra"),
                f"TPUs are in gcp, not in {cloud!r}",
            )
        return TaskPlace(
            kind, version or parse(kind).generation.runtime_version_default, zone, region,
            bool(resources.get("use_spot")),
        )  # fmt: skip

    def _location(self, resources: Mapping[str, Any], where: Any) -> tuple[str, str, str]:
        infra = resources.get("infra")
        if infra is None:
            found = (
                resources.get("cloud") or "",
                resources.get("region") or "",
                resources.get("zone") or "",
            )
            return found[0].lower(), found[1], found[2]
        if any(resources.get(name) for name in ("cloud", "region", "zone")):
            raise self._wrong(
                where("infra"), f"{where('infra')} cannot be combined with cloud, region or zone"
            )
        cloud, region, zone = (*infra.split("/"), "", "")[:3]
        return cloud.lower(), region.replace("*", ""), zone.replace("*", "")

    def _type(self, value: object, path: str) -> str:
        if value is None:
            raise self._wrong(
                "resources", "resources.accelerators is required: a TPU type, for example tpu-v2-8"
            )
        if isinstance(value, Mapping) and len(value) == 1:
            ((text, count),) = value.items()
        elif isinstance(value, str):
            text, _, number = value.partition(":")
            count = int(number) if number.isdigit() else number or 1
        else:
            raise self._wrong(
                path, f"{path} must be one TPU type, for example tpu-v2-8, not {_kind(value)}"
            )
        name = str(text).lower()
        if not name.startswith("tpu-"):
            raise self._wrong(path, f"{path} is {text!r}: jobs run on TPUs, for example tpu-v2-8")
        if count != 1:
            raise self._wrong(path, f"{path}: the count is {count}: it must be 1, a whole slice")
        try:
            return parse(name.removeprefix("tpu-")).name
        except PodyardError as error:
            raise self._wrong(path, f"{path}: {error.message}") from None

    def _runtime_version(self, value: object, path: str) -> str:
        if value is None:
            return ""
        found = self._mapping(value, path)
        self._check_fields(found, path, ACCELERATOR_ARGS, {}, {})
        if found.get("tpu_vm", True) is not True:
            text = (
                f"{path}.tpu_vm is false: there are no TPU nodes any more; remove it, and "
                "programs run on the TPU VMs"
            )
            raise self._wrong(f"{path}.tpu_vm", text)
        for name, why in (
            ("tpu_name", "the node is called like the job"),
            ("gcp_queued_resource", "the job itself waits for its node"),
        ):
            if name in found:
                self._notes.append(
                    f"line {self._file.line_of(f'{path}.{name}')}: {path}.{name} has no "
                    f"effect: {why}"
                )
        return self._text(found, "runtime_version", f"{path}.")

    def _workdir(self, task: Mapping[str, Any], variables: Mapping[str, str]) -> str:
        if isinstance(task.get("workdir"), Mapping):
            text = (
                "workdir must be a folder of this machine: clone the repository and name the folder"
            )
            raise self._wrong("workdir", text)
        return _fill(self._text(task, "workdir", ""), variables)

    def _mounts(self, task: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for target, value in self._mapping(task.get("file_mounts") or {}, "file_mounts").items():
            path, source = f"file_mounts.{target}", value
            if isinstance(value, Mapping):
                self._check_fields(
                    value, path, frozenset({"source", "mode"}),
                    {"store": "there is one store, gs://",
                        "persistent": "nothing is removed from a bucket"},
                    dict.fromkeys(("name", "config", "_is_sky_managed", "_bucket_sub_path",
                        "_force_delete"),
                                  "name a gs:// object, or a file of this machine, as source"),
                )  # fmt: skip
                if str(value.get("mode", "MOUNT")).upper() != "COPY":
                    text = (
                        f"{path}: buckets are not mounted: use mode: COPY, or read gs:// "
                        "in the program"
                    )
                    raise self._wrong(path, text)
                source = value.get("source")
            if not isinstance(source, str):
                raise self._wrong(
                    path, f"{path} must be a path or a gs:// object, not {_kind(source)}"
                )
            source = _fill(source, variables)
            if _OTHER_STORES.match(source):
                raise self._wrong(path, f"{path}: {source} is not here: copy it to gs:// first")
            found[_fill(target, variables)] = source
        return found


def _fill(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), text)


def _kind(value: object) -> str:
    kinds = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "nothing" if value is None else "that")
