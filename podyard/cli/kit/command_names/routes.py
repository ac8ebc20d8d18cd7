"""Words that users of kubectl, gcloud, docker, SkyPilot and Ray type, and the commands that they
lead to. A route runs its command; a hint names the commands in an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

Words = tuple[str, ...]

# What a command of a group is called elsewhere; the first one that the group has is run.
SYNONYMS: Mapping[str, Words] = {
    "ls": ("list", "show"),
    "ps": ("list",),
    "list": ("ls", "show"),
    "get": ("describe", "show", "list", "ls"),
    "describe": ("show",),
    "show": ("describe", "list"),
    "inspect": ("describe", "show"),
    "info": ("describe", "show"),
    "status": ("describe", "show", "list"),
    "rm": ("delete", "remove", "rb"),
    "remove": ("delete", "rm", "rb"),
    "del": ("delete", "remove", "rm"),
    "delete": ("remove", "rm"),
    "destroy": ("delete", "remove"),
    "terminate": ("delete", "cancel"),
    "kill": ("cancel",),
    "stop": ("cancel",),
    "abort": ("cancel",),
    "add": ("create", "set", "submit"),
    "new": ("create", "submit"),
    "create": ("submit", "add", "set", "mb"),
    "run": ("submit",),
    "log": ("logs",),
    "tail": ("logs",),
    "scale": ("resize",),
    "copy": ("cp",),
    "mv": ("cp",),
    "rsync": ("sync",),
    "connect": ("ssh",),
    "shell": ("ssh",),
}

# Kinds of resources, as `kubectl get KIND` and `gcloud KIND list` name them.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(
        ("node", "nodes", "no", "tpus", "tpu-vm", "tpu-vms", "vm", "vms", "instance", "instances",
         "machine", "cluster", "clusters"), "tpu"),
    **dict.fromkeys(("jobs", "task", "tasks"), "job"),
    **dict.fromkeys(("sweeps", "experiment", "experiments"), "sweep"),
    **dict.fromkeys(("queued-resource", "queued-resources", "qrs"), "qr"),
    **dict.fromkeys(("reservations",), "reservation"),
    **dict.fromkeys(("projects", "namespace", "namespaces", "ns"), "project"),
    **dict.fromkeys(("pod", "po"), "pods"),
    **dict.fromkeys(("buckets", "bucket"), "storage"),
    **dict.fromkeys(("budgets",), "budget"),
    **dict.fromkeys(("bills", "billing", "invoice", "invoices"), "bill"),
    **dict.fromkeys(("prices", "pricing"), "price"),
    **dict.fromkeys(("webhooks",), "webhook"),
    **dict.fromkeys(("runtimes", "image", "images"), "runtime"),
    **dict.fromkeys(("faults",), "fault"),
    **dict.fromkeys(("accelerator-types", "accelerators", "types", "gpus"), "hardware"),
    **dict.fromkeys(("commitments",), "commitment"),
    **dict.fromkeys(("workers",), "agent"),
}  # fmt: skip

# The longest one that a line begins with is replaced.
ROUTES: Mapping[Words, Words] = {
    ("whoami",): ("auth", "whoami"),
    ("auth", "list"): ("auth", "whoami"),
    ("ps",): ("jobs",),
    ("ps", "-a"): ("jobs",),
    ("exec",): ("tpu", "exec"),
    ("exec", "-it"): ("tpu", "exec"),
    ("exec", "-ti"): ("tpu", "exec"),
    ("exec", "-i", "-t"): ("tpu", "exec"),
    ("scp",): ("tpu", "scp"),
    ("zones",): ("pods", "list"),
    ("regions",): ("pods", "list"),
    ("get", "zones"): ("pods", "list"),
    ("get", "events"): ("events",),
    ("quota",): ("project", "list"),
    ("quotas",): ("project", "list"),
    ("cost",): ("bill", "show"),
    ("costs",): ("bill", "show"),
    ("cost-report",): ("bill", "show"),
    ("version",): ("--version",),
    ("help",): ("--help",),
    ("man",): ("--help",),
    ("api-resources",): ("--help",),
    ("info",): ("status",),
    ("cluster-info",): ("status",),
    ("check",): ("doctor",),
    ("show-gpus",): ("hardware", "list"),
    ("show-tpus",): ("hardware", "list"),
    ("jobs", "queue"): ("jobs",),
    ("dashboard",): ("open",),
    ("console",): ("open",),
    ("ui",): ("open",),
    ("stats",): ("top",),
    ("summary",): ("top",),
    ("history",): ("events",),
    ("images",): ("runtime", "list"),
    ("cancel",): ("job", "cancel"),
    ("submit",): ("job", "submit"),
    ("launch",): ("job", "launch"),
    ("wait",): ("job", "wait"),
    ("config", "list"): ("status",),
    ("config", "view"): ("status",),
    ("storage", "buckets"): ("storage",),
    ("storage", "objects"): ("storage",),
    ("compute", "zones", "list"): ("pods", "list"),
    ("compute", "regions", "list"): ("pods", "list"),
    ("compute", "instances"): ("tpu",),
    ("compute", "tpus"): ("tpu",),
    ("compute", "tpus", "tpu-vm"): ("tpu",),
    ("compute", "tpus", "queued-resources"): ("qr",),
    ("compute", "tpus", "reservations"): ("reservation",),
    ("compute", "tpus", "locations"): ("pods",),
    ("compute", "tpus", "accelerator-types"): ("hardware",),
    ("compute", "tpus", "versions"): ("runtime",),
    ("compute", "accelerator-types"): ("hardware",),
}

_NODES, _JOBS = "podyard nodes", "podyard jobs"
HINTS: Mapping[str, Words] = {
    "ls": (_NODES, _JOBS, "podyard storage ls gs://BUCKET"),
    "list": (_NODES, _JOBS, "podyard project list"),
    "get": (_NODES, _JOBS, "podyard events"),
    "describe": ("podyard tpu describe NODE", "podyard job describe JOB"),
    "show": ("podyard tpu describe NODE", "podyard job describe JOB"),
    "inspect": ("podyard tpu describe NODE", "podyard job describe JOB"),
    "create": ("podyard tpu create NODE", "podyard job submit"),
    "delete": ("podyard tpu delete NODE", "podyard job cancel JOB"),
    "rm": ("podyard tpu delete NODE", "podyard job cancel JOB", "podyard storage rm gs://..."),
    "kill": ("podyard job cancel JOB", "podyard tpu delete NODE"),
    "stop": ("podyard job cancel JOB", "podyard tpu stop NODE", "podyard down"),
    "start": ("podyard up", "podyard tpu start NODE", "podyard job submit"),
    "restart": ("podyard tpu stop NODE", "podyard tpu start NODE"),
    "apply": ("podyard job launch FILE.yaml", "podyard tpu create NODE"),
    "edit": ("podyard job clone JOB", "podyard project update PROJECT"),
    "scale": ("podyard job resize JOB",),
    "autoscale": ("podyard job submit --elastic N", "podyard job resize JOB"),
    "autostop": ("podyard job submit --accelerator-type TYPE", "podyard tpu delete NODE"),
    "attach": ("podyard logs JOB --follow", "podyard tpu ssh NODE"),
    "port-forward": ("podyard connect ADDRESS", "podyard tpu ssh NODE"),
    "proxy": ("podyard connect ADDRESS",),
    "login": ("podyard open", "podyard auth token create"),
    "logout": ("podyard auth token revoke TOKEN",),
    "config": ('eval "$(podyard env)"', "podyard status"),
    "compute": (_NODES, "podyard tpu create NODE"),
    "init": ("podyard up",),
    "build": ("podyard runtime install VERSION",),
    "pull": ("podyard runtime install VERSION", "podyard storage cp gs://... FILE"),
    "push": ("podyard storage cp FILE gs://...",),
    "cp": ("podyard tpu scp FILE NODE:FILE", "podyard storage cp FILE gs://..."),
    "rsync": ("podyard storage sync FOLDER gs://...",),
    "serve": ("podyard predict",),
    "memory": ("podyard estimate FILE_OR_RECIPE",),
    "timeline": ("podyard job describe JOB", "podyard events JOB"),
    "label": ("podyard tpu create NODE --labels KEY=VALUE",),
    "annotate": ("podyard tpu create NODE --labels KEY=VALUE",),
    "provision": ("podyard tpu create NODE", "podyard job submit --accelerator-type TYPE"),
    "destroy": ("podyard tpu delete NODE", "podyard down --delete-data"),
    "uninstall": ("podyard down --delete-data",),
    "upgrade": ("podyard up", "podyard admin backup FILE"),
    "system": ("podyard status", "podyard doctor", "podyard top"),
    "network": ("podyard tpu describe NODE",),
    "volume": ("podyard storage ls", "podyard tpu describe NODE"),
    "compose": ("podyard job launch FILE.yaml", "podyard up"),
    "api": ("podyard status", "podyard calls"),
    "drain": ("podyard agent drain AGENT",),
    "cordon": ("podyard agent drain AGENT",),
    "uncordon": ("podyard agent resume AGENT",),
    "rollout": ("podyard job clone JOB", "podyard job resize JOB"),
    "watch": ("podyard jobs --watch", "podyard top"),
    "update": ("podyard project update PROJECT", "podyard job resize JOB"),
}

# Words behind a group that has no such command.
GROUP_HINTS: Mapping[str, Words] = {
    "auth login": ("podyard open", "podyard auth token create"),
    "auth logout": ("podyard auth token revoke TOKEN",),
    "auth can-i": ("podyard auth whoami",),
    "project describe": ("podyard project list",),
    "project switch": ('eval "$(podyard env --project PROJECT)"',),
    "project use": ('eval "$(podyard env --project PROJECT)"',),
}
# Groups that are taken for a command with a name.
GROUP_NAMES: Mapping[str, Words] = {
    "explain": ("podyard tpu describe NODE", "podyard job describe JOB"),
    "queue": ("podyard queue", "podyard qr describe QUEUED_RESOURCE"),
    "ssh": ("podyard tpu ssh NODE",),
    "storage": ("podyard storage ls gs://BUCKET",),
}

# Commands that take no names, and what is meant by one behind them.
WITHOUT_NAMES: Mapping[str, Words] = {
    "podyard nodes": ("podyard tpu describe NODE",),
    "podyard jobs": ("podyard job describe JOB",),
    "podyard up": ("podyard job launch FILE.yaml", "podyard tpu create NODE"),
    "podyard down": ("podyard tpu delete NODE", "podyard job cancel JOB"),
    "podyard status": ("podyard tpu describe NODE", "podyard job describe JOB"),
    "podyard top": (_NODES, _JOBS),
}


def hints(name: str) -> Words:
    """Return the commands that are meant by a word, or by the one that it is nearly."""
    near = difflib.get_close_matches(name, HINTS, 1, 0.75)
    return HINTS.get(name) or (HINTS[near[0]] if near else ())


def group_hints(group: str, name: str) -> Words:
    """Return the commands that are meant by a word behind a group."""
    return GROUP_HINTS.get(f"{group} {name}") or GROUP_NAMES.get(group, ())


def redirect(args: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the line with a foreign beginning replaced. `groups`: the names of the commands of
    each group that is asked for."""
    for size in range(len(args), 0, -1):
        route = ROUTES.get(tuple(args[:size]))
        if route is not None:
            return redirect_kind([*route, *args[size:]], groups)
    return redirect_kind(list(args), groups)


def redirect_kind(args: list[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Replace `KIND VERB ...`, `VERB KIND ...` and `VERB KIND/NAME ...`."""
    if args and args[0] in KINDS and args[0] not in _COMMANDS_TOO:
        return [KINDS[args[0]], *args[1:]]
    if len(args) > 1 and args[0] in _COMMANDS_TOO and not args[1].startswith("-"):
        group = KINDS[args[0]]
        return [group, *args[1:]] if verb_of(args[1], groups.get(group, ())) else args
    if len(args) < 2 or args[0] not in SYNONYMS or args[0] in list(groups):
        return args
    verb, (kind, slash, name) = args[0], args[1].partition("/")
    group = KINDS.get(kind, kind)
    rest = [name, *args[2:]] if slash else args[2:]
    command = verb_of(verb, groups.get(group, ()), is_of_one=has_name(rest))
    return args if command is None else [group, command, *rest]


# `podyard nodes` and `podyard jobs` are commands, and kinds in front of a verb.
_COMMANDS_TOO = ("nodes", "jobs")


def has_name(rest: Sequence[str]) -> bool:
    """Return True if a name follows a verb, and no option."""
    return bool(rest) and not rest[0].startswith("-")


def verb_of(verb: str, commands: Sequence[str], *, is_of_one: bool = True) -> str | None:
    """Return the command of a group that a verb means; None: none."""
    if verb in commands:
        return verb
    words = SYNONYMS.get(verb, ())
    if verb == "get" and not is_of_one:
        words = ("list", "ls", "show")
    return next((word for word in words if word in commands), None)
