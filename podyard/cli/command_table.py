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
        "up": CommandEntry("stack", "Start Podyard."),
        "down": CommandEntry("stack", "Stop Podyard."),
        "status": CommandEntry("stack", "Show what is running."),
        "open": CommandEntry("open_console", "Open the console in a browser, signed in."),
        "demo": CommandEntry("demo", "Create two nodes, train on real data, and verify the bill."),
        "doctor": CommandEntry("doctor", "Show what is wrong on this machine and what to do."),
    },
    "At a glance": {
        "top": CommandEntry("top", "Show running jobs, chips in use and cost, live."),
        "nodes": CommandEntry("shortcuts", "List nodes (tpu list)."),
        "jobs": CommandEntry("shortcuts", "List jobs (job list)."),
        "logs": CommandEntry("shortcuts", "Print a job's log (job logs)."),
        "events": CommandEntry("events", "List what happened to nodes, jobs and requests."),
    },
    "Nodes and capacity": {
        "tpu": CommandEntry("tpu", "Manage TPU nodes."),
        "qr": CommandEntry("queue", "Manage queued resources."),
        "reservation": CommandEntry("queue", "Manage reservations of chips of a generation."),
        "queue": CommandEntry("queue", "Show waiting requests and jobs."),
        "pods": CommandEntry("pods", "Show pods and the slices in them."),
        "hardware": CommandEntry("admin", "Show TPU generations and accelerator types."),
        "runtime": CommandEntry("runtimes", "Software of runtime versions: list, install, remove."),
    },
    "Jobs and data": {
        "job": CommandEntry("jobs", "Manage jobs."),
        "sweep": CommandEntry("sweeps",
            "Submit jobs that differ in some values, and compare them."),
        "tensorboard": CommandEntry("tensorboard", "Start TensorBoard on the curves of jobs."),
        "storage": CommandEntry("storage", "Manage buckets and objects."),
        "predict": CommandEntry("predict", "Predict with an exported model on the CPU."),
    },
    "Plan and explain": {
        "estimate": CommandEntry("estimate", "Estimate time, memory, energy and cost of one step."),
        "plan": CommandEntry("plan", "Predict when a run would end and what it would cost."),
        "explain": CommandEntry("explain", "Explain how the hardware computes, step by step."),
        "simulate": CommandEntry("simulate",
            "Simulate days of a platform and check every invariant."),
    },
    "Cost": {
        "bill": CommandEntry("bill", "Show costs, and manage invoices, credits and exports."),
        "budget": CommandEntry("budget", "Manage budgets."),
        "commitment": CommandEntry("commitment", "Manage commitments."),
        "price": CommandEntry("price", "Show prices of TPUs, hosts and disks."),
    },
    "Connect clients": {
        "env": CommandEntry("env",
            "Print exports that make gcloud and Google's libraries use Podyard."),
        "run": CommandEntry("env", "Run a command with the exports of `podyard env`."),
        "ssh": CommandEntry("ssh_setup", "Connect OpenSSH and gcloud to the hosts of TPU nodes."),
        "connect": CommandEntry("connect", "Open the ports of a remote Podyard on this machine."),
        "calls": CommandEntry("calls", "List the calls that clients made to Google's APIs."),
        "completion": CommandEntry("completion",
            "Print a completion script for bash, zsh or fish."),
    },
    "Projects and access": {
        "project": CommandEntry("projects", "Manage projects."),
        "webhook": CommandEntry("webhook", "Manage webhooks, which are told of events."),
        "auth": CommandEntry("admin", "Manage tokens, keys and roles."),
    },
    "Operate": {
        "agent": CommandEntry("agents", "Manage the machines that run replicas and hosts."),
        "clock": CommandEntry("clock", "Show and control platform time."),
        "fault": CommandEntry("faults", "Inject faults by rule."),
        "fsck": CommandEntry("fsck", "Check all invariants of the database."),
        "admin": CommandEntry("operations", "Operate this Podyard: backups, copies, audit log."),
    },
}  # fmt: skip

# Another name of a command, which the help leaves out.
ALIASES: Mapping[str, str] = {"agents": "agent"}

ENTRIES: Mapping[str, CommandEntry] = {
    name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()
}
