"""Fault rules in a scenario file: the list `faults:` of a YAML mapping, whatever else the file
holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import BadRequest, PodyardError, invalid
from podyard.domain import yaml_file
from podyard.domain.fault import parse_rules
from podyard.domain.yaml_file import YamlFile

KEY = "faults"
_EPOCH = PlatformTime(0)


def read_faults(text: str, name: str) -> list[dict[str, Any]]:
    """The rules of a file, as they go to `POST /podyard/v1/faults:batchCreate`, all of them
    checked.

    Raises INVALID_ARGUMENT with the file's `name`, the line and the field that is wrong. What
    depends on the present (whether a time has passed) is for the platform to say.
    """
    return faults_of(yaml_file.parse(text, name, invalid), name)


def faults_of(file: YamlFile, name: str) -> list[dict[str, Any]]:
    """As `read_faults`, of a file that is parsed."""
    data = file.data
    if not isinstance(data, Mapping) or not isinstance(data.get(KEY), list):
        raise invalid(f"{name}: line 1: a scenario must be a mapping with a list {KEY}", KEY)
    try:
        parse_rules(data[KEY], _EPOCH)
    except PodyardError as error:
        field = field_of(error)
        raise invalid(f"{name}: line {file.line_of(field)}: {error.message}", field) from None
    return list(data[KEY])


def field_of(error: PodyardError) -> str:
    """The field that a refused rule names."""
    return next(
        (item.violations[0].field for item in error.details if isinstance(item, BadRequest)), KEY
    )
