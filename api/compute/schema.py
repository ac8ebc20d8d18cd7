"""The tables of messages and methods, read."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from podyard.api.compute.tables import catalogue, common, disks, groups, instances, networks
from podyard.api.wire.vocabulary import Field, MessageSchema, Vocabulary

_PARTS = (common, catalogue, disks, networks, instances, groups)
VERSIONS = ("v1", "beta", "alpha")  # all of them are served by the tables of v1
_PARAMETERS: Mapping[str, str] = {
    "@list": "filter maxResults:int32 orderBy pageToken returnPartialSuccess:bool",
    "@aggregated": "filter includeAllScopes:bool maxResults:int32 orderBy pageToken "
    "returnPartialSuccess:bool serviceProjectNumber:int64",
    "@change": "requestId",
}
_TEXTS: Mapping[str, str] = {
    "filter": "What the answer is narrowed to.",
    "maxResults": "The most that one page may hold.",
    "orderBy": "`name`, or `creationTimestamp desc`.",
    "pageToken": "The nextPageToken of the page before.",
    "requestId": "A UUID: the same one is carried out once.",
}
# Collections whose lists have messages of their own, next to those of zones.
_REGIONAL_LISTS = ("regionInstanceGroupManagers",)
# Lists whose messages have other names than those that follow.
_LIST_NAMES: Mapping[str, str] = {
    "subnetworks.listUsable": "UsableSubnetworksAggregatedList",
    "instanceGroupManagerResizeRequests.list": "InstanceGroupManagerResizeRequestsListResponse",
}
_ALWAYS_REACHED = ("InstanceTemplate",)  # no place that is down hides any of these
_FIELD = re.compile(r"(\w+)(?::([^!\s]*))?(!?)")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class ComputeMethod:
    """`path` follows `/compute/VERSION/`; `body` and `answer` are names of messages, or empty.
    `query` are the parameters by their names."""

    id: str
    verb: str
    path: str
    query: Mapping[str, Field]
    body: str
    answer: str
    permission: str
    text: str
    required: tuple[str, ...] = ()  # of the query

    @property
    def collection(self) -> str:
        """The collection of the method: `disks`."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        return self.id.rpartition(".")[2]

    @property
    def placeholders(self) -> tuple[str, ...]:
        return tuple(_PLACEHOLDER.findall(self.path))


@functools.cache
def vocabulary() -> Vocabulary:
    enums: dict[str, Mapping[str, int]] = {}
    messages = {}
    for name, text, fields in _message_lines():
        messages[name] = MessageSchema(
            name, text, {field.name: field for field in _fields(name, fields, enums)}
        )
    for method in methods():
        for message in _list_messages(method):
            messages.setdefault(message.name, message)
    return Vocabulary("google.cloud.compute.v1", messages, enums, is_lenient=True)


@functools.cache
def methods() -> tuple[ComputeMethod, ...]:
    return tuple(_method(line) for part in _PARTS for line in part.METHODS.strip().splitlines())


def _method(line: str) -> ComputeMethod:
    name, verb, path, query, body, answer, permission, text = (
        part.strip() for part in line.split("|")
    )
    for short, whole in _PARAMETERS.items():
        query = query.replace(short, whole)
    fields = list(_fields("", query, {}))
    parameters = {
        field.name: dataclasses.replace(field, output_only=False, left_aside=False)
        for field in fields
    }
    required = tuple(field.name for field in fields if field.output_only)
    return ComputeMethod(name, verb, path, parameters, body, answer, permission, text, required)


def _message_lines() -> Iterator[tuple[str, str, str]]:
    """(message, sentence, its fields) of each message of the tables."""
    for part in _PARTS:
        for block in re.split(r"\n(?=\w)", part.MESSAGES.strip()):
            first, _, fields = block.partition("\n")
            name, _, sentence = first.partition(": ")
            yield name, sentence, fields


def _fields(message: str, text: str, enums: dict[str, Mapping[str, int]]) -> Iterator[Field]:
    """The fields of a message; its enums are added to `enums`."""
    for name, kind, output in _FIELD.findall(text):
        plain = kind.removesuffix("[]")
        mapped = plain.startswith("map<")
        plain = plain.removeprefix("map<").removesuffix(">") if mapped else plain
        if "|" in plain:
            enum = f"{message}.{name}"
            # Compute Engine's JSON has no numbers of them; 0 would be unset.
            enums[enum] = {label: at for at, label in enumerate(plain.split("|"), start=1)}
            plain = enum
        yield Field(
            name=name,
            type=plain or "string",
            repeated=kind.endswith("[]"),
            mapped=mapped,
            output_only=bool(output),
            left_aside=bool(output),
            optional=True,
            text=_TEXTS.get(name, ""),
        )


def list_kind(method: ComputeMethod) -> str:
    """The name of the message that a list answers with: `DiskList`, `DiskAggregatedList`."""
    item = method.answer[:-2]
    if method.id in _LIST_NAMES:
        return _LIST_NAMES[method.id]
    if method.collection in _REGIONAL_LISTS:
        return f"Region{item}List"
    return f"{item}AggregatedList" if method.answer.endswith("{}") else f"{item}List"


def item_kind(method: ComputeMethod) -> str:
    """The message of one item of a list."""
    return method.answer[:-2]


def _list_messages(method: ComputeMethod) -> Iterator[MessageSchema]:
    if not method.answer.endswith(("[]", "{}")):
        return
    item, name = item_kind(method), list_kind(method)
    shared = "id! kind! nextPageToken! selfLink! warning:Warning!"
    if method.answer.endswith("[]"):
        yield _message(name, f"A page of {method.collection}.", f"items:{item}[] {shared}")
        return
    collection = method.path.rpartition("/")[2]
    scoped = f"{collection[0].upper()}{collection[1:]}ScopedList"
    missing = "" if item in _ALWAYS_REACHED else "unreachables:[]! "
    items = f"items:map<{scoped}> {missing}{shared}"
    yield _message(name, f"A page of {collection} of all places.", items)
    yield _message(scoped, "Those of one place.", f"{collection}:{item}[]! warning:Warning!")


def _message(name: str, text: str, fields: str) -> MessageSchema:
    return MessageSchema(name, text, {field.name: field for field in _fields(name, fields, {})})
