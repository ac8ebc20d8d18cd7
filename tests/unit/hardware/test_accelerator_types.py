"""Legal types: the reference's tables, row by row."""

import math

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.hardware import accelerator_types, runtime_versions
from podyard.hardware.generations import GENERATIONS

# name: (topology, chips, cores, hosts), from the reference table.
TABLE = {
    "v2-8": ("2x2", 4, 8, 1),
    "v2-32": ("4x4", 16, 32, 4),
    "v2-128": ("8x8", 64, 128, 16),
    "v2-256": ("8x16", 128, 256, 32),
    "v2-512": ("16x16", 256, 512, 64),
    "v3-8": ("2x2", 4, 8, 1),
    "v3-32": ("4x4", 16, 32, 4),
    "v3-64": ("4x8", 32, 64, 8),
    "v3-1024": ("16x32", 512, 1024, 128),
    "v3-2048": ("32x32", 1024, 2048, 256),
    "v4-8": ("2x2x1", 4, 8, 1),
    "v4-16": ("2x2x2", 8, 16, 2),
    "v4-32": ("2x2x4", 16, 32, 4),
    "v4-64": ("2x4x4", 32, 64, 8),
    "v4-128": ("4x4x4", 64, 128, 16),
    "v4-1536": ("8x8x12", 768, 1536, 192),
    "v4-4096": ("8x16x16", 2048, 4096, 512),
    "v5litepod-1": ("1x1", 1, 1, 1),
    "v5litepod-4": ("2x2", 4, 4, 1),
    "v5litepod-8": ("2x4", 8, 8, 1),
    "v5litepod-16": ("4x4", 16, 16, 4),
    "v5litepod-256": ("16x16", 256, 256, 64),
    "v5p-8": ("2x2x1", 4, 8, 1),
    "v5p-1024": ("8x8x8", 512, 1024, 128),
    "v5p-12288": ("16x16x24", 6144, 12288, 1536),
    "v6e-1": ("1x1", 1, 1, 1),
    "v6e-8": ("2x4", 8, 8, 1),
    "v6e-256": ("16x16", 256, 256, 64),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    kind = accelerator_types.parse(name)
    assert (kind.topology.text, kind.chip_count, kind.core_count, kind.host_count) == TABLE[name]
    assert kind.name == name
    assert kind.source


def test_counts_of_named_types() -> None:
    counts = {g: len(accelerator_types.all_types(g)) for g in GENERATIONS}
    assert counts == {
        "v1": 0,
        "v2": 5,
        "v3": 8,
        "v4": 68,
        "v5e": 8,
        "v5p": 127,
        "v6e": 8,
        "tpu7x": 131,
    }


def test_every_named_type_is_read_back_from_its_configuration() -> None:
    for kind in accelerator_types.all_types():
        assert accelerator_types.from_topology(kind.generation, kind.topology.text) == kind
        if kind.generation.wire_type is not None:
            wire = accelerator_types.from_config(kind.generation.wire_type, kind.topology.text)
            assert wire == kind


def test_counts_of_legal_shapes_are_xpks() -> None:
    assert len(accelerator_types.legal_shapes(GENERATIONS["v4"])) == 186
    assert len(accelerator_types.legal_shapes(GENERATIONS["v5p"])) == 414
    assert len(accelerator_types.legal_shapes(GENERATIONS["tpu7x"])) == 432


@pytest.mark.parametrize(
    ("name", "topology", "chips", "hosts", "devices"),
    [
        ("tpu7x-2", "1x1x1", 1, 1, 2),
        ("tpu7x-8", "2x2x1", 4, 1, 8),
        ("tpu7x-16", "2x2x2", 8, 2, 16),
        ("tpu7x-128", "4x4x4", 64, 16, 128),
        ("tpu7x-512", "4x8x8", 256, 64, 512),
        ("tpu7x-13824", "12x24x24", 6912, 1728, 13824),
    ],
)
def test_tpu7x_counts_cores_of_which_each_is_a_device(
    name: str, topology: str, chips: int, hosts: int, devices: int
) -> None:
    """docs.cloud.google.com/tpu/docs/tpu7x."""
    kind = accelerator_types.parse(name)
    assert kind.topology.text == topology
    assert (kind.chip_count, kind.host_count, kind.device_count) == (chips, hosts, devices)
    assert accelerator_types.kind_of(name, topology) == kind


def test_bounds_as_the_recorded_tpu_env_has_them() -> None:
    kind = accelerator_types.parse("v4-256")
    assert (kind.chips_per_host_bounds, kind.host_bounds) == ("2,2,1", "2,2,8")
    assert kind.topology.wrap == (True, True, True)
    single = accelerator_types.parse("v5litepod-8")
    assert (single.chips_per_host_bounds, single.host_bounds) == ("2,4,1", "1,1,1")
    assert accelerator_types.parse("v3-32").host_bounds == "2,2,1"


def test_bounds_multiply_to_the_chips() -> None:
    for kind in accelerator_types.all_types():
        product = 1
        for part in (kind.chips_per_host_bounds + "," + kind.host_bounds).split(","):
            product *= int(part)
        assert product == kind.chip_count, kind.name


def test_wrap_around_only_from_a_full_cube_and_over_the_whole_pod() -> None:
    assert accelerator_types.parse("v4-64").topology.wrap == (False, False, False)
    assert accelerator_types.parse("v4-128").topology.wrap == (True, True, True)
    assert accelerator_types.parse("v3-512").topology.wrap == (False, False)
    assert accelerator_types.parse("v3-1024").topology.wrap == (False, True)
    assert accelerator_types.parse("v2-256").topology.wrap == (False, True)
    assert accelerator_types.parse("v6e-1").topology.wrap == (False, False)


def test_twisted_types_are_those_of_the_reference() -> None:
    kinds = [k for k in accelerator_types.all_types() if k.generation.wire_type is not None]
    twisted = {kind.name for kind in kinds if kind.topology.twisted}
    v4 = {"v4-256", "v4-512", "v4-2048", "v4-4096"}
    named = v4 | {"v5p-256", "v5p-512", "v5p-2048", "v5p-4096", "v5p-6912", "v5p-13824"}
    # Sizes that no table names: 12x12x24 on v4, 16x16x32 on v5p.
    assert twisted == named | {"v4-6912", "v5p-16384"}


def test_config_takes_shapes_that_no_name_has() -> None:
    kind = accelerator_types.from_config("V4", "4x4x12")
    assert (kind.name, kind.chip_count, kind.host_count) == ("v4-384", 192, 48)
    assert accelerator_types.from_config("V4", "4x4x8_untwisted").topology.twisted is False
    assert accelerator_types.from_config("V4", "16x16x16").core_count == 8192


@pytest.mark.parametrize(
    ("wire_type", "topology", "why"),
    [
        ("V9", "4x4", "does not exist"),
        ("V4", "4x4", "2 dimensions"),
        ("V4", "3x3x3", "multiple of 4"),
        ("V4", "4x8x4", "ascending order, 4x4x8"),
        ("V4", "16x16x20", "80 cubes"),
        ("V5P", "4x4x260", "longer than 256"),
        ("V4", "4x4x4_twisted", "cannot be twisted"),
        ("V3", "2x4", "one of 2x2, 4x4"),
        ("V5LITE_POD", "32x32", "not offered"),
        ("V4", "cube", "not a shape"),
    ],
)
def test_config_says_why_not(wire_type: str, topology: str, why: str) -> None:
    with pytest.raises(PodyardError, match=why) as caught:
        accelerator_types.from_config(wire_type, topology)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(PodyardError, match="nearest that do are v3-8, v3-32, v3-64"):
        accelerator_types.parse("v3-16")
    for name in ("v9-8", "v1-1", "v3", "v3-08", "", "v5e-8", "tpu v3-8"):
        with pytest.raises(PodyardError, match="does not exist"):
            accelerator_types.parse(name)


def test_peaks_follow_from_arrays_and_clock() -> None:
    for generation in GENERATIONS.values():
        arrays = generation.mxu_count_per_core * generation.cores_per_chip
        peak = 2 * generation.mxu_rows * generation.mxu_columns * arrays * generation.clock_hz
        published = generation.peak_bf16_flops_per_second or generation.peak_int8_ops_per_second
        assert published is not None
        assert peak == pytest.approx(published, rel=0.01), generation.name


def test_every_generation_names_its_sources() -> None:
    numbers = ("hbm_bytes", "hbm_bytes_per_second", "clock_hz", "peak_bf16_flops_per_second")
    for generation in GENERATIONS.values():
        assert set(numbers) <= set(generation.sources), generation.name
    assert GENERATIONS["v1"].node_type is False
    assert [math.prod(GENERATIONS[name].pod_shape) for name in ("v2", "v3", "v4")] == [
        256,
        1024,
        4096,
    ]


def test_runtime_versions() -> None:
    runtime_versions.check_serves("v2-alpha-tpuv5", GENERATIONS["v5p"])
    runtime_versions.check_serves("a-version-of-next-week", GENERATIONS["v2"], unknown_allowed=True)
    for version, generation, near in (
        ("tpu-vm-bas", "v3", "tpu-vm-base"),
        ("tpu-vm-tf-2.18", "v4", "tpu-vm-tf-2.18.0-pjrt"),
        ("v2-alpha-tpuv5lite", "v5e", "v2-alpha-tpuv5-lite"),
        ("x", "v6e", "v2-alpha-tpuv6e"),
        ("", "v2", "tpu-ubuntu2204-base"),
    ):
        with pytest.raises(
            PodyardError, match=f"does not exist; the nearest that runs on {generation} is '{near}'"
        ):
            runtime_versions.check_serves(version, GENERATIONS[generation])
    with pytest.raises(PodyardError, match=r'The field "TensorflowVersion" cannot be "2\.4"'):
        runtime_versions.check_tensorflow("2.4")
    runtime_versions.check_tensorflow("2.4", unknown_allowed=True)
    assert all(item.source for item in runtime_versions.RUNTIME_VERSIONS.values())
    with pytest.raises(PodyardError, match="does not run on v2"):
        runtime_versions.check_serves("tpu-vm-v4-base", GENERATIONS["v2"])
    for of_nodes in (item for item in GENERATIONS.values() if item.wire_type is not None):
        runtime_versions.check_serves(of_nodes.runtime_version_default, of_nodes)
        assert of_nodes.runtime_version_default in runtime_versions.RUNTIME_VERSIONS
