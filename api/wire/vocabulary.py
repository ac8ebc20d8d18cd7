"""The messages and enums of one version of one API, as its tables give them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from podyard.base.spelling import snake_case


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. `number` None: not in protobuf. `mapped`: a map of texts to `type`.
    `hidden`: read, but neither documented nor answered."""

    name: str
    type: str
    repeated: bool = False
    mapped: bool = False
    number: int | None = None
    output_only: bool = False
    left_aside: bool = False
    hidden: bool = False
    optional: bool = False
    one_of: str = ""
    text: str = ""

    @property
    def snake(self) -> str:
        return snake_case(self.name)


@dataclasses.dataclass(frozen=True)
class MessageSchema:
    """A message; `name` is the full one (QueuedResource.Tpu), `fields` are in the order of the
    table."""

    name: str
    text: str
    fields: Mapping[str, Field]

    @property
    def short(self) -> str:
        return self.name.rsplit(".", 1)[-1]

    @functools.cached_property
    def by_any_name(self) -> Mapping[str, Field]:
        """Fields by both of JSON's spellings."""
        both = {field.snake: field for field in self.fields.values()}
        return {**both, **self.fields}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """`package`: of the types of messages, as errors name them. `enums`: names and numbers.
    `is_lenient`: it is read as Compute Engine reads: enums in any case, and a list of messages
    where one belongs, whose fields count together."""

    package: str
    messages: Mapping[str, MessageSchema]
    enums: Mapping[str, Mapping[str, int]]
    is_lenient: bool = False

    def type_url(self, name: str) -> str:
        return f"type.googleapis.com/{self.package}.{name}"

    @functools.cached_property
    def enum_names(self) -> Mapping[str, Mapping[int, str]]:
        return {
            enum: {number: name for name, number in values.items()}
            for enum, values in self.enums.items()
        }
