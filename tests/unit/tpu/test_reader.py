"""JSON of clients to messages, and back: what protobuf's JSON mapping takes, in every version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podyard.api.tpu import reader
from podyard.api.tpu.schema import VERSIONS, enums, messages, methods
from podyard.api.wire.reader import duration_nanos
from podyard.base.errors import BadRequest, Code, PodyardError
from podyard.domain.principal import PERMISSIONS


def refused(version: str, message: str, data: Any, path: str = "") -> list[dict[str, str]]:
    with pytest.raises(PodyardError) as caught:
        reader.read(version, message, data, path)
    assert caught.value.code is Code.INVALID_ARGUMENT
    (detail,) = caught.value.details
    assert isinstance(detail, BadRequest)
    return [one._asdict() for one in detail.violations]


def test_both_spellings_enums_of_both_kinds_and_numbers_as_text_are_one() -> None:
    camel = {
        "acceleratorConfig": {"type": "V4", "topology": "2x2x2"},
        "bootDiskConfig": {"diskSizeGb": 100},
    }
    snake = {
        "accelerator_config": {"type": 7, "topology": "2x2x2"},
        "boot_disk_config": {"disk_size_gb": "100"},
    }
    one, other = (reader.read("v2alpha1", "Node", data) for data in (camel, snake))
    assert one == other
    assert one["bootDiskConfig"] == {"diskSizeGb": "100"}


def test_null_and_defaults_are_unset_but_empty_messages_and_items_stay() -> None:
    data = {
        "description": "",
        "labels": {},
        "tags": ["", "a"],
        "networkConfig": {"enableExternalIps": False},
    }
    assert reader.read("v2", "Node", {**data, "runtimeVersion": None}) == {
        "tags": ["", "a"],
        "networkConfig": {},
    }
    assert reader.read("v2", "QueuedResource", {"spot": {}}) == {"spot": {}}


def test_one_object_stands_for_a_list_of_one_as_skypilot_sends_it() -> None:
    data = {"tpu": {"nodeSpec": {"nodeId": "a"}}}
    assert reader.read("v2", "QueuedResource", data) == {"tpu": {"nodeSpec": [{"nodeId": "a"}]}}
    assert refused("v2", "Node", {"tags": "a"})[0]["field"] == "tags"


def test_times_are_told_in_utc_and_durations_are_checked() -> None:
    policy = {"validUntilTime": "2026-03-01T02:00:00+02:00"}
    found = reader.read("v2", "QueuedResource", {"queueingPolicy": policy})
    assert found["queueingPolicy"] == {"validUntilTime": "2026-03-01T00:00:00Z"}
    for wrong in ("3600", "1h", "s", 3600, "1.0000000001s"):
        assert refused("v2", "QueuedResource", {"queueingPolicy": {"validAfterDuration": wrong}})
    for wrong in ("2026-03-01T00:00:00", "yesterday", 5, "2026-02-30T00:00:00Z"):
        assert refused("v2", "QueuedResource", {"queueingPolicy": {"validAfterTime": wrong}})
    assert duration_nanos("-1.5s") == -1_500_000_000


def test_every_wrong_field_is_named_at_once() -> None:
    data = {
        "acceleratorType": 5,
        "schedulingConfig": {"spot": "yes", "nothing": 1},
        "tags": [None],
        "labels": {"a": 1},
    }
    found = refused("v2", "Node", data, "node")
    assert [item["field"] for item in found] == [
        "node.accelerator_type",
        "node.scheduling_config.spot",
        "node.scheduling_config",
        "node.tags[0]",
        "node.labels",
    ]
    assert found[2]["description"] == (
        "Invalid JSON payload received. Unknown name \"nothing\" at 'node.scheduling_config': "
        "Cannot find field."
    )


@pytest.mark.parametrize(
    ("version", "message", "data"),
    [
        ("v1", "Node", {"runtimeVersion": "x"}),
        ("v2", "Node", {"tensorflowVersion": "x"}),
        ("v2", "Node", {"autocheckpointEnabled": True}),
        ("v2", "QueuedResource", {"bestEffort": {}}),
        ("v2", "QueuedResource", {"spot": {}, "guaranteed": {}}),
        (
            "v2alpha1",
            "QueuedResource",
            {"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": 2}}]}},
        ),
        (
            "v2",
            "QueuedResource",
            {"tpu": {"nodeSpec": [{"nodeId": "a", "multisliceParams": {"nodeCount": 2}}]}},
        ),
        ("v2", "Node", {"acceleratorType": "a", "accelerator_type": "b"}),
        ("v2", "Node", {"acceleratorType": "\ud800"}),
        ("v2", "Node", {"acceleratorType": "a\0b"}),
        ("v2", "Node", {"networkConfig": {"queueCount": 2**31}}),
        ("v2", "Node", {"networkConfig": {"queueCount": 1.5}}),
        ("v2", "Node", {"networkConfig": {"queueCount": True}}),
        ("v2", "Node", {"networkConfig": {"queueCount": float("nan")}}),
        ("v2", "Node", {"acceleratorConfig": {"type": True}}),
        ("v2", "Node", {"acceleratorConfig": {"type": 1}}),
        ("v2", "Node", {"dataDisks": [{"mode": "READ"}]}),
        ("v2", "Node", []),
        ("v2", "Node", None),
    ],
)
def test_what_the_version_does_not_know_is_refused(version: str, message: str, data: Any) -> None:
    assert refused(version, message, data)


def test_a_reserved_guarantee_is_taken_by_v2_and_not_answered_there() -> None:
    # v2's document does not have it, and a released client sends it.
    taken = reader.read("v2", "QueuedResource", {"guaranteed": {"reserved": True}})
    assert taken == {"guaranteed": {"reserved": True}}
    assert reader.shape("v2", "QueuedResource", taken) == {"guaranteed": {}}
    assert reader.shape("v2alpha1", "QueuedResource", taken) == taken


def test_inside_operations_only_what_the_released_library_knows_is_shown() -> None:
    data = {
        "name": "a",
        "upcomingMaintenance": {"canReschedule": True},
        "bootDiskConfig": {},
        "protectionTier": "STANDARD",
    }
    assert reader.shape("v2", "Node", data) == data
    assert reader.shape("v2", "Node", data, proto=True) == {"name": "a"}
    assert set(reader.shape("v2alpha1", "Node", data, proto=True)) == {
        "name",
        "upcomingMaintenance",
        "bootDiskConfig",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({name for version in VERSIONS for name in messages(version)["Node"].by_any_name})


@pytest.mark.slow
@given(
    version=st.sampled_from(VERSIONS),
    data=st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON, max_size=5),
)
def test_whatever_comes_is_read_or_refused_and_reading_again_changes_nothing(
    version: str, data: dict[str, Any]
) -> None:
    try:
        found = reader.read(version, "Node", data)
    except PodyardError as error:
        assert error.details
        return
    assert reader.read(version, "Node", json.loads(json.dumps(found))) == found
    assert set(found) <= set(messages(version)["Node"].fields)


def test_the_tables_hold_together() -> None:
    scalars = {
        "string",
        "bool",
        "int32",
        "int64",
        "timestamp",
        "duration",
        "map",
        "any",
        "fieldmask",
    }
    for version in VERSIONS:
        known = messages(version)
        for message in known.values():
            numbers = [
                field.number for field in message.fields.values() if field.number is not None
            ]
            assert len(set(numbers)) == len(numbers), message.name
            for field in message.fields.values():
                assert field.type in scalars | set(known) | set(enums(version)), (
                    message.name,
                    field.name,
                )
                assert field.text.endswith("."), (message.name, field.name)
    for method in methods():
        assert method.permission in PERMISSIONS, method.id
        for version in method.versions:
            request = messages(version)[method.request]
            assert method.path_field in request.fields, method.id
            assert method.body in ("-", "*") or method.body in request.fields, method.id
