"""The commands that do what the pages of instances do, and those that lead into an instance."""

from __future__ import annotations

from podyard.domain.instances.group import GroupRow
from podyard.domain.instances.instance import Instance, InstanceSpec, ProvisioningModel
from podyard.domain.instances.messages import write_instance
from podyard.web.kit.commands import EXPORTS, Command, get, line, post

SHELL_KEY = "~/.ssh/google_compute_engine"  # gcloud makes it
_DELIMITERS = (",", ":", ";", "#", "@", "~~", "%%", "^^")


def create_instance(project: str, zone: str, name: str, spec: InstanceSpec) -> list[Command]:
    name = name or "INSTANCE"
    words = ["gcloud", "compute", "instances", "create", name]
    path = f"/compute/v1/projects/{project}/zones/{zone}/instances"
    return [
        Command("gcloud", f"{EXPORTS}\n{line(words, _flags(project, zone, spec), [])}"),
        Command("curl", post(path, {}, write_instance(name, zone, spec))),
    ]


def _flags(project: str, zone: str, spec: InstanceSpec) -> list[tuple[str, str]]:
    scheduling, (owner, *_, image) = spec.scheduling, spec.boot.image.split("/")[1:]
    of_image = "--image-family" if "/family/" in spec.boot.image else "--image"
    flags = [
        ("--project", project),
        ("--zone", zone),
        ("--machine-type", spec.machine_type),
        ("--image-project", owner),
        (of_image, image),
        ("--boot-disk-size", f"{spec.boot.size_gb}GB"),
    ]
    if scheduling.model is not ProvisioningModel.STANDARD:
        flags.append(("--provisioning-model", scheduling.model.value))
    if scheduling.termination_action is not None:
        flags.append(("--instance-termination-action", scheduling.termination_action.value))
    if scheduling.max_run_seconds is not None:
        flags.append(("--max-run-duration", f"{scheduling.max_run_seconds:g}s"))
    if scheduling.on_host_maintenance:
        flags.append(("--maintenance-policy", scheduling.on_host_maintenance))
    flags += [
        ("--create-disk", f"size={disk.new_gb}GB,type={disk.new_type},auto-delete=yes")
        for disk in spec.disks
    ]
    if spec.labels:
        flags.append(("--labels", ",".join(f"{key}={text}" for key, text in spec.labels.items())))
    flags += [("--metadata", _metadata(key, text)) for key, text in spec.metadata.items()]
    if spec.description:
        flags.append(("--description", spec.description))
    return flags


def _metadata(key: str, text: str) -> str:
    """One entry, as gcloud reads it: commas part entries, unless another sign is named first."""
    sign = next((one for one in _DELIMITERS if one not in text), ",")
    return f"{key}={text}" if sign == "," else f"^{sign}^{key}={text}"


def instance_commands(project: str, zone: str, name: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    words = ["gcloud", "compute", "instances"]
    console = line([*words, "get-serial-port-output", name], place, [])
    return [
        Command("gcloud", f"{EXPORTS}\n{line([*words, 'describe', name], place, [])}"),
        Command("Serial port output", f"{EXPORTS}\n{console}"),
        Command("curl", get(f"/compute/v1/projects/{project}/zones/{zone}/instances/{name}")),
    ]


def connect_commands(instance: Instance) -> list[Command]:
    """gcloud makes the key and adds it to the metadata; ssh uses the same key. None where it cannot
    be reached from outside."""
    row = instance.row
    if not instance.external_ip or not instance.spec.interfaces[0].has_external_ip:
        return []
    place = [("--project", row.project), ("--zone", row.zone)]
    words = ["gcloud", "compute", "ssh", row.name]
    copy = ["gcloud", "compute", "scp", "train.py", f"{row.name}:"]
    own = f"# After gcloud has logged in once\nssh -i {SHELL_KEY} {instance.external_ip}"
    return [
        Command("gcloud", f"{EXPORTS}\n{line(words, place, [])}"),
        Command("Copy a file", f"{EXPORTS}\n{line(copy, place, [])}"),
        Command("Your own ssh", own),
    ]


def group_commands(row: GroupRow, size: int) -> list[Command]:
    """`size`: the one to resize to."""
    is_zone = row.place == row.zone
    where = ("--zone" if is_zone else "--region", row.place)
    place = [("--project", row.project), where]
    words = ["gcloud", "compute", "instance-groups", "managed"]
    resize = line([*words, "resize", row.name], [*place, ("--size", str(size))], [])
    return [
        Command("gcloud", f"{EXPORTS}\n{line([*words, 'describe', row.name], place, [])}"),
        Command("Resize", f"{EXPORTS}\n{resize}"),
        Command("curl", get(f"/compute/v1/{row.path}")),
    ]
