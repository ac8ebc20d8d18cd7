"""Every command: its group in the help, its module, and its line in the help.

The lines are here, so that `podyard --help` and completion import no command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class CommandEntry:
    """`module`: of podyard.cli; it is imported only when the command runs, so that `up` starts at
    once."""

    module: str
    line: str


COMMAND_GROUPS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Start and stop": {
        "up": CommandEntry("tools.stack", "Start Podyard."),
        "down": CommandEntry("tools.stack", "Stop Podyard."),
        "status": CommandEntry("tools.stack", "Show what is running."),
        "open": CommandEntry("tools.open_console", "Open the console in a browser, signed in."),
        "demo": CommandEntry("tools.demo",
            "Create two nodes, train on real data, and verify the bill."),
        "doctor": CommandEntry("tools.doctor",
            "Show what is wrong on this machine and what to do."),
    },
    "At a glance": {
        "top": CommandEntry("tools.top", "Show running jobs, chips in use and cost, live."),
        "nodes": CommandEntry("tools.shortcuts", "List nodes (tpu list)."),
        "jobs": CommandEntry("tools.shortcuts", "List jobs (job list)."),
        "logs": CommandEntry("tools.shortcuts", "Print a job's log (job logs)."),
        "events": CommandEntry("nodes.events", "List what happened to nodes, jobs and requests."),
    },
    "Nodes and capacity": {
        "tpu": CommandEntry("nodes.tpu", "Manage TPU nodes."),
        "qr": CommandEntry("nodes.queue", "Manage queued resources."),
        "reservation": CommandEntry("nodes.queue", "Manage reservations of chips of a generation."),
        "queue": CommandEntry("nodes.queue", "Show waiting requests and jobs."),
        "pods": CommandEntry("nodes.pods", "Show pods and the slices in them."),
        "hardware": CommandEntry("tools.admin", "Show TPU generations and accelerator types."),
        "runtime": CommandEntry("nodes.runtimes",
            "Software of runtime versions: list, install, remove."),
    },
    "Jobs and data": {
        "job": CommandEntry("jobs.jobs", "Manage jobs."),
        "sweep": CommandEntry("jobs.sweeps",
            "Submit jobs that differ in some values, and compare them."),
        "tensorboard": CommandEntry("jobs.tensorboard", "Start TensorBoard on the curves of jobs."),
        "storage": CommandEntry("storage.storage", "Manage buckets and objects."),
        "dataset": CommandEntry("storage.datasets.command",
            "Data sets that programs find without internet: list, add."),
        "predict": CommandEntry("programs.predict", "Predict with an exported model on the CPU."),
    },
    "Plan and explain": {
        "estimate": CommandEntry("programs.estimate",
            "Estimate time, memory, energy and cost of one step."),
        "plan": CommandEntry("programs.plan.command",
            "Predict when a run would end and what it would cost."),
        "explain": CommandEntry("tools.explain",
            "Explain how the hardware computes, step by step."),
        "simulate": CommandEntry("programs.simulate",
            "Simulate days of a platform and check every invariant."),
    },
    "Cost": {
        "bill": CommandEntry("money.bill", "Show costs, and manage invoices, credits and exports."),
        "budget": CommandEntry("money.budget", "Manage budgets."),
        "commitment": CommandEntry("money.commitment", "Manage commitments."),
        "price": CommandEntry("money.price", "Show prices of TPUs, hosts and disks."),
    },
    "Connect clients": {
        "env": CommandEntry("nodes.env",
            "Print exports that make gcloud and Google's libraries use Podyard."),
        "run": CommandEntry("nodes.env", "Run a command with the exports of `podyard env`."),
        "ssh": CommandEntry("nodes.ssh_setup",
            "Connect OpenSSH and gcloud to the hosts of TPU nodes."),
        "connect": CommandEntry("nodes.connect",
            "Open the ports of a remote Podyard on this machine."),
        "calls": CommandEntry("tools.calls", "List the calls that clients made to Google's APIs."),
        "completion": CommandEntry("kit.completion",
            "Print a completion script for bash, zsh or fish."),
    },
    "Projects and access": {
        "project": CommandEntry("tools.projects", "Manage projects."),
        "webhook": CommandEntry("tools.webhook", "Manage webhooks, which are told of events."),
        "auth": CommandEntry("tools.admin", "Manage tokens, keys and roles."),
    },
    "Operate": {
        "agent": CommandEntry("nodes.agents", "Manage the machines that run replicas and hosts."),
        "clock": CommandEntry("tools.clock", "Show and control platform time."),
        "fault": CommandEntry("nodes.faults", "Inject faults by rule."),
        "fsck": CommandEntry("tools.fsck", "Check all invariants of the database."),
        "admin": CommandEntry("nodes.operations",
            "Operate this Podyard: backups, copies, audit log."),
    },
}  # fmt: skip

# Another name of a command, which the help leaves out.
ALIASES: Mapping[str, str] = {"agents": "agent"}

ENTRIES: Mapping[str, CommandEntry] = {
    name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()
}
