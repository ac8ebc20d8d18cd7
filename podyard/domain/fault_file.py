"""Fault rules in a scenario file: the list `faults:` of a YAML mapping, whatever else the file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.domain.fault import parse_rules

KEY = "faults"
_EPOCH = PlatformTime(0)


class Loader(yaml.SafeLoader):
    """Times stay the texts that they are."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_faults(text: str, name: str) -> list[dict[str, Any]]:
    """The rules of a file, as they go to `POST /podyard/v1/faults:batchCreate`, all of them checked.

    Raises INVALID_ARGUMENT with the file's `name`, the line and the field that is wrong. What depends on the present
    (whether a time has passed) is for the platform to say.
    """
    try:
        data = yaml.load(text, Loader=Loader)
        root = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise invalid(f"{name}: not YAML: {error}") from error
    if not isinstance(data, Mapping) or not isinstance(data.get(KEY), list):
        raise invalid(f"{name}: line 1: a scenario is a mapping with a list of {KEY}", KEY)
    try:
        parse_rules(data[KEY], _EPOCH)
    except PodyardError as error:
        field = field_of(error)
        raise invalid(f"{name}: line {line_of(root, field)}: {error.message}", field) from None
    return list(data[KEY])


def field_of(error: PodyardError) -> str:
    """The field that a refused rule names."""
    violations: Any = next((detail["fieldViolations"] for detail in error.details if "fieldViolations" in detail), ())
    return str(violations[0]["field"]) if violations else KEY


def line_of(node: yaml.Node | None, path: str) -> int:
    """Where `faults[2].match.zone` is in the file; where it is missing, the line of what it is missing in."""
    line = 1
    for part in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
            continue
        named = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next(((key, value) for key, value in named if key.value == part), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line
