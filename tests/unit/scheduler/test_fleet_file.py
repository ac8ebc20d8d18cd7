"""The fleet file: what it offers, and what its errors say."""

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.domain import fleet as fleets
from podyard.domain import fleet_file
from podyard.domain.node import UsageClass
from podyard.hardware import accelerator_types
from podyard.settings import DEFAULT_FLEET
from podyard.stack.fleets import read_fleet


def offered(zone: str) -> set[str]:
    return {kind.name for kind in fleet_file.shipped_fleet(DEFAULT_FLEET).offered_types(zone)}


def test_the_default_fleet_offers_the_whole_range() -> None:
    everything = {
        name for zone in fleet_file.shipped_fleet(DEFAULT_FLEET).zones for name in offered(zone)
    }
    wanted = {
        k.name for g in ("v2", "v3", "v4", "v5e", "v6e") for k in accelerator_types.all_types(g)
    }
    assert wanted <= everything
    assert {"v5p-8", "v5p-128", "v5p-1024", "v5p-12288"} <= everything
    assert offered("us-central2-b") == {k.name for k in accelerator_types.all_types("v4")}
    assert "v2-8" in offered("us-central1-f")
    assert {"v2-8", "v3-8", "v3-32", "v3-2048"} <= offered("europe-west4-a")


def test_pod_ids_are_unique() -> None:
    pods = fleet_file.shipped_fleet(DEFAULT_FLEET).pods()
    assert len({pod.pod_id for pod in pods}) == len(pods)
    assert fleet_file.shipped_fleet(DEFAULT_FLEET).pod(pods[-1].pod_id) == pods[-1]


def test_the_default_quota_lets_the_largest_type_through() -> None:
    fleet = fleet_file.shipped_fleet(DEFAULT_FLEET)
    for zone in fleet.zones.values():
        for kind in fleet.offered_types(zone.name):
            for usage in UsageClass:
                assert fleet.quota_limit(zone.region, kind, usage) >= fleets.quota_units(kind)


def test_not_offered_says_where_it_is() -> None:
    fleet = fleet_file.shipped_fleet(DEFAULT_FLEET)
    with pytest.raises(
        PodyardError, match=r'invalid AcceleratorType, "v4-8" for zone "us-east1-d"\. Valid'
    ) as refused:
        fleet.check_offered("us-east1-d", accelerator_types.parse("v4-8"), UsageClass.SPOT)
    why = "v4-8 (topology 2x2x1) is not offered in us-east1-d; it is offered in us-c"
    assert why in str(refused.value.details)
    small = fleet_file.load_fleet("zones: {us-east5-a: {v5p: {shape: 8x8x8}}}")
    with pytest.raises(PodyardError) as refused:
        small.check_offered(
            "us-east5-a", accelerator_types.from_config("V5P", "4x4x256"), UsageClass.SPOT
        )
    assert "no zone of this fleet offers it" in str(refused.value.details)
    with pytest.raises(PodyardError, match="this fleet has us-central1-a") as caught:
        fleet.zone("mars-north1-a")
    assert caught.value.code is Code.NOT_FOUND


def test_usage_classes_and_quota_rules() -> None:
    fleet = fleet_file.load_fleet(
        """
zones: {us-central1-a: {v2: {usage: [on-demand, spot]}}}
quotas:
  default: 64
  overrides:
    - {generation: v2, kind: device, limit: 16}
    - {region: us-central1, usage: spot, limit: 0}
"""
    )
    device, pod = (accelerator_types.parse(name) for name in ("v2-8", "v2-32"))
    with pytest.raises(PodyardError, match="not offered as preemptible: only as on-demand, spot"):
        fleet.check_offered("us-central1-a", device, UsageClass.PREEMPTIBLE)
    assert fleet.quota_limit("us-central1", device, UsageClass.SPOT) == 16
    assert fleet.quota_limit("us-central1", pod, UsageClass.SPOT) == 0
    assert fleet.quota_limit("us-central1", pod, UsageClass.ON_DEMAND) == 64


def test_quota_names_are_googles() -> None:
    names = {
        ("v2-32", UsageClass.PREEMPTIBLE): "TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI",
        ("v2-32", UsageClass.ON_DEMAND): "TPUV2sPodPerProjectPerRegionForTPUAPI",
        ("v4-8", UsageClass.SPOT): "TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI",
        ("v5litepod-4", UsageClass.SPOT): "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI",
    }
    for (kind, usage), name in names.items():
        assert fleets.quota_name(accelerator_types.parse(kind), usage) == name
    assert fleets.quota_message(
        "us-central1-a", accelerator_types.parse("v2-32"), UsageClass.ON_DEMAND, 0
    ) == (
        "Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI,TPUV2sPodPerProjectPerZoneForTPUAPI' "
        "has been exceeded. "
        "Limit: 0,0 in region us-central1,zone us-central1-a."
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("- 1", "fleet file: must be a mapping"),
        ("zones: [", "not YAML"),
        ("zones: {}", "fleet file, zones: a fleet has at least one zone"),
        ("zones: {us: {}}", "zones.us: 'us' is not the name of a zone"),
        ("zones: {us-central1-a: {v9: {}}}", "zones.us-central1-a.v9: 'v9' is not a generation"),
        ("zones: {us-central1-a: {v1: {}}}", "'v1' is not a generation that has nodes"),
        (
            "zones: {us-central1-a: {v2: {pod: 1}}}",
            "v2: unknown key pod: allowed are interconnect, pods",
        ),
        (
            "zones: {us-central1-a: {v2: {pods: -1}}}",
            "zones.us-central1-a.v2.pods: -1 is not a number",
        ),
        (
            "zones: {us-central1-a: {v2: {shape: 4}}}",
            "zones.us-central1-a.v2.shape: topology '4' is not a shape",
        ),
        ("zones: {us-central1-a: {v2: {shape: 3x4}}}", "does not divide into hosts"),
        ("zones: {us-central1-a: {v2: {types: [v3-8]}}}", "'v3-8' is not a v2 type: v2-128"),
        (
            "zones: {us-central1-a: {v2: {usage: [free]}}}",
            "usage[0]: unknown usage 'free': use on-demand",
        ),
        (
            "zones: {us-central1-a: {v4: {interconnect: air}}}",
            "v4.interconnect: unknown interconnect 'air'",
        ),
        (
            "zones: {us-central1-a: {v2: {interconnect: switch}}}",
            "v2.interconnect: v2 has no optical switches",
        ),
        (
            "zones: {us-central1-a: {v4: {shape: 4x4x6}}}",
            "zones.us-central1-a.v4.shape: 4x4x6 does not divide into",
        ),
        (
            "{zones: {us-central1-a: {v2: {}}}, timings: {create_seconds: soon}}",
            "timings.create_seconds: 'soon'",
        ),
        (
            "{zones: {us-central1-a: {v2: {}}}, quotas: {overrides: [{}]}}",
            "quotas.overrides[0].limit: None",
        ),
        (
            "{zones: {us-central1-a: {v2: {}}}, quotas: {overrides: 3}}",
            "quotas.overrides: must be a list",
        ),
    ],
)
def test_errors_name_the_place(text: str, where: str) -> None:
    with pytest.raises(PodyardError) as caught:
        fleet_file.load_fleet(text)
    assert where in caught.value.message
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_optical_switches_are_what_v4_and_v5p_have_unless_the_file_says_torus() -> None:
    def offered_by(interconnect: str) -> set[str]:
        fleet = fleet_file.load_fleet(f"zones: {{us-east5-a: {{v5p: {interconnect}, v2: {{}}}}}}")
        assert {pod.switched for pod in fleet.zone("us-east5-a").offers["v2"].pods} == {False}
        return {kind.topology.text for kind in fleet.offered_types("us-east5-a")}

    # 29 cubes in a row are longer than the pod, but no more than it has.
    assert "4x4x116" in offered_by("{}") & offered_by("{interconnect: switch}")
    assert "4x4x116" not in offered_by("{interconnect: torus}")
    assert {"2x2x1", "4x4x28"} <= offered_by("{interconnect: torus}")
    assert fleet_file.load_fleet("zones: {us-east5-a: {v4: {shape: 4x4x6, interconnect: torus}}}")


def test_regions() -> None:
    assert fleets.region_of("northamerica-northeast1-b") == "northamerica-northeast1"
    with pytest.raises(PodyardError, match="not the name of a zone"):
        fleets.region_of("us-central1")


def test_larger_nodes_of_the_default_fleet_take_longer_to_create() -> None:
    timings = fleet_file.shipped_fleet(DEFAULT_FLEET).timings
    seconds = [
        timings.creation_seconds(accelerator_types.parse(name).host_count)
        for name in ("v2-8", "v3-32", "v4-4096")
    ]
    assert seconds == sorted(set(seconds))
    assert 1 <= seconds[0] <= 10
    assert seconds[-1] <= 60


@pytest.mark.parametrize(
    ("name", "units"), [("v2-8", 512), ("v3-32", 2048), ("v4-8", 8192), ("v5litepod-4", 256)]
)
def test_a_quota_of_the_default_fleet_is_one_full_pod(name: str, units: int) -> None:
    kind = accelerator_types.parse(name)
    fleet = fleet_file.shipped_fleet(DEFAULT_FLEET)
    assert {fleet.quota_limit("us-central1", kind, usage) for usage in UsageClass} == {units}


def test_the_instant_fleet_is_the_default_one_without_delays_and_quotas() -> None:
    instant, default = fleet_file.instant_fleet(), fleet_file.shipped_fleet(DEFAULT_FLEET)
    assert instant.zones == default.zones
    assert instant.timings.creation_seconds(512) == 0
    assert (
        instant.quota_limit("us-central1", accelerator_types.parse("v2-8"), UsageClass.SPOT)
        == fleets.QUOTA_UNLIMITED
    )


def test_a_file_that_extends_a_fleet_replaces_its_keys() -> None:
    found = fleet_file.load_fleet("{extends: default, timings: {create_seconds: 1}}")
    assert found.zones == fleet_file.shipped_fleet(DEFAULT_FLEET).zones
    assert found.timings.creation_seconds(4) == 1
    with pytest.raises(
        PodyardError, match="extends: unknown fleet 'other': use default or instant"
    ):
        fleet_file.load_fleet("extends: other")


def test_a_fleet_that_cannot_be_read_is_named_with_what_is_allowed() -> None:
    with pytest.raises(
        PodyardError, match=r"cannot read the fleet file /nowhere: .* use default or instant"
    ):
        read_fleet("/nowhere")
