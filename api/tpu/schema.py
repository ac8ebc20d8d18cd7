"""The tables of messages and methods, read: what a message has in which version, and what a method
is."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from podyard.api.tpu import methods as method_tables
from podyard.api.tpu import tables
from podyard.api.wire.vocabulary import Field, MessageSchema, Vocabulary
from podyard.hardware.generations import BY_WIRE_TYPE

VERSIONS = ("v1", "v1alpha1", "v2", "v2alpha1")
# Versions that google-cloud-tpu has a package of: only these have protobuf descriptors.
PROTO_VERSIONS = ("v1", "v2", "v2alpha1")
_SETS: Mapping[str, tuple[str, ...]] = {
    "all": VERSIONS,
    "v1": ("v1", "v1alpha1"),
    "v2": ("v2",),
    "v2+": ("v2", "v2alpha1"),
    "alpha": ("v2alpha1",),
    "alphas": ("v1alpha1", "v2alpha1"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Method:
    """`path` as in the table; `verb` is HTTP's; `custom` the part behind the colon of the path, if
    any."""

    id: str
    rpc: str
    verb: str
    path: str
    body: str
    response: str
    versions: tuple[str, ...]
    permission: str
    text: str

    @property
    def request(self) -> str:
        return f"{self.rpc}Request"

    @property
    def path_field(self) -> str:
        """The field of the request that the path holds: `name` or `parent`."""
        found = re.match(r"\{(\w+)", self.path)
        assert found is not None, self.path
        return found[1]

    @property
    def collection(self) -> str:
        """The collection whose member the path names; empty for projects and zones."""
        found = re.match(r"\{\w+=L/(\w+)\}", self.path)
        return found[1] if found else ""

    @property
    def custom(self) -> str:
        return self.path.partition(":")[2]

    @property
    def flat_path(self) -> str:
        """The path behind `/VERSION/`, with a placeholder for each id: {project}, {zone} and
        {id}."""
        member = f"/{self.collection}/{{id}}" if self.collection else ""
        zone = "/locations/{zone}" if "=L" in self.path else ""
        return f"projects/{{project}}{zone}{member}{self.path[self.path.index('}') + 1 :]}"


@functools.cache
def messages(version: str) -> Mapping[str, MessageSchema]:
    """Every message of a version, by full name; those of the other versions only are left out."""
    found: dict[str, MessageSchema] = {}
    every = (
        tables.NODES,
        tables.QUEUE,
        tables.COMMON,
        method_tables.REQUESTS,
        method_tables.RESPONSES,
    )
    for name, text, lines in _read(*every):
        fields = {}
        for line in lines:
            field = _field(line, version)
            if field is not None:
                fields[field.name] = field
        if fields or not lines:
            found[name] = MessageSchema(name, text, fields)
    # A message without fields is part of a version when something of that version uses it.
    used = {
        field.type
        for message in found.values()
        for field in message.fields.values()
        if not field.hidden
    }
    used |= {method.response for method in methods_of(version)}
    return {name: message for name, message in found.items() if message.fields or name in used}


_GENERATIONS = "AcceleratorConfig.Type"
_ADDED_FROM = 1000  # of generations that Google's API has no value for: far above its own numbers


@functools.cache
def enums(version: str) -> Mapping[str, Mapping[str, int]]:
    """Every enum of a version: names and numbers; Google's, and one for each other generation."""
    found = {}
    for line in tables.ENUMS.strip().splitlines():
        name, *values = line.split()
        numbers = {}
        for value in values:
            label, _, rest = value.partition("=")
            number, _, only = rest.partition("@")
            if not only or version in _SETS[only]:
                numbers[label] = int(number)
        if name == _GENERATIONS:
            added = [wire_type for wire_type in BY_WIRE_TYPE if wire_type not in numbers]
            numbers |= {wire_type: _ADDED_FROM + index for index, wire_type in enumerate(added)}
        if numbers:
            found[name] = numbers
    return found


@functools.cache
def vocabulary(version: str) -> Vocabulary:
    return Vocabulary(f"google.cloud.tpu.{version}", messages(version), enums(version))


@functools.cache
def methods() -> tuple[Method, ...]:
    found = []
    for line in method_tables.METHODS.strip().splitlines():
        name, rpc, verb, path, body, response, versions, permission, text = (
            part.strip() for part in line.split(" | ")
        )
        found.append(
            Method(name, rpc, verb, path, body, response, _SETS[versions], permission, text)
        )
    return tuple(found)


def methods_of(version: str) -> tuple[Method, ...]:
    return tuple(method for method in methods() if version in method.versions)


def _read(*texts: str) -> Iterator[tuple[str, str, list[str]]]:
    """(message, sentence, lines of its fields) of each message of the tables."""
    for text in texts:
        name, sentence, lines = "", "", []
        for line in text.strip().splitlines():
            if line.startswith("  "):
                lines.append(line)
                continue
            if name:
                yield name, sentence, lines
            name, _, sentence = line.partition(": ")
            lines = []
        yield name, sentence, lines


def _field(line: str, version: str) -> Field | None:
    name, kind, versions, numbers, flags, text = (part.strip() for part in line.split("|", 5))
    words = flags.split()
    hidden = f"also-{version}" in words
    if version not in _SETS[versions] and not hidden:
        return None
    return Field(
        name=name,
        type=kind.removesuffix("[]"),
        repeated=kind.endswith("[]"),
        number=None if hidden else _number(numbers, version),
        output_only="out" in words,
        left_aside="out" in words or "left" in words,
        hidden=hidden,
        optional="optional" in words,
        one_of=next((word[4:] for word in words if word.startswith("one:")), ""),
        text=text,
    )


def _number(numbers: str, version: str) -> int | None:
    if version not in PROTO_VERSIONS:
        return None
    parts = numbers.split("/")
    text = parts[0] if len(parts) == 1 else parts[PROTO_VERSIONS.index(version)]
    return None if text == "-" else int(text)
