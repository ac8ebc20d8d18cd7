"""systemctl and journalctl as files of a box. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path

import podyard
from podyard.workers.box.plan import BoxPlan
from podyard.workers.box.units import commands
from podyard.workers.box.units.systemctl import BOOT

_COMMANDS = "/run/podyard/unit-commands"
_COMMAND_PATHS = ("/usr/bin/systemctl", "/usr/bin/journalctl")
_OWN_UNITS = "/etc/systemd/system"
# What starts the units that are enabled: most boxes have none.
_START_ENABLED = (
    f"for unit in {_OWN_UNITS}/*.wants/*.service {_OWN_UNITS}/*.requires/*.service; "
    f'do [ -e "$unit" ] && exec {_COMMAND_PATHS[0]} {BOOT}; done; exit 0'
)
BOOT_COMMAND = ("/bin/sh", "-c", _START_ENABLED)


def with_unit_commands(plan: BoxPlan) -> BoxPlan:
    """`plan` with the commands for units of systemd."""
    package = Path(podyard.__file__).parents[1]
    command = (sys.executable, "-I", "-S", commands.__file__, str(package))
    text = f'#!/bin/sh\nexec {shlex.join(command)} "$0" "$@"\n'
    return dataclasses.replace(
        plan,
        folders={**plan.folders, _OWN_UNITS: 0o755},
        links={**plan.links, **dict.fromkeys(_COMMAND_PATHS, _COMMANDS)},
        files={**plan.files, _COMMANDS: (0o755, text)},
    )
