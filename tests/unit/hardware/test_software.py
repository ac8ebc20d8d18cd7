"""Runtime versions and the software that they have with each Python."""

from __future__ import annotations

import pytest

from podyard.hardware.runtime_versions import RUNTIME_VERSIONS, TENSORFLOW_VERSIONS
from podyard.hardware.software import LOCKED_PYTHON, SOFTWARE, Software, find_software, software_of


@pytest.mark.parametrize(
    ("version", "python", "title"),
    [
        ("tpu-vm-tf-2.16.1-pjrt", 11, "TensorFlow 2.16.1"),
        ("tpu-vm-tf-2.16.1-pod-se", 12, "TensorFlow 2.16.1"),
        ("tpu-vm-tf-2.8.0", 11, "TensorFlow 2.15.1"),  # the nearest later one
        ("tpu-vm-tf-2.8.0", 12, "TensorFlow 2.16.1"),
        ("tpu-vm-tf-2.9.3-pod-v4", 13, "TensorFlow 2.21.0"),
        ("tpu-vm-tf-2.17.0-pjrt", 11, "TensorFlow 2.18.0"),
        ("tpu-vm-tf-2.30.0-pjrt", 11, "TensorFlow 2.21.0"),  # the last one, where none is later
        ("1.15", 11, "TensorFlow 2.15.1"),
        ("2.3", 11, "TensorFlow 2.15.1"),
        ("nightly-2.x", 12, "TensorFlow 2.21.0"),
        ("tpu-vm-pt-1.13", 11, "PyTorch 2.13.0"),
    ],
)
def test_a_version_has_its_release_or_the_nearest_one(
    version: str, python: int, title: str
) -> None:
    choice = software_of(version, python)
    assert choice.software is not None and choice.software.title == title
    own = choice.software.release in version
    assert bool(choice.why) != own or version.startswith("nightly")
    assert choice.sentence().startswith(f"{version}: {title} here")


@pytest.mark.parametrize(
    ("version", "python", "why"),
    [
        ("tpu-ubuntu2204-base", 10, "its image has no framework"),
        ("tpu-vm-tf-2.16.1-pjrt", 14, "there is no TensorFlow for Python 3.14"),
    ],
)
def test_without_software_it_says_why(version: str, python: int, why: str) -> None:
    choice = software_of(version, python)
    assert choice.software is None
    assert choice.sentence() == f"{version}: the Python of Podyard ({why})"


def test_an_image_without_a_framework_has_jax_where_that_is_installed() -> None:
    choice = software_of("v2-alpha-tpuv5-lite", 11)
    assert choice.optional
    assert choice.sentence() == "v2-alpha-tpuv5-lite: JAX 0.10.2 here (its image has no framework)"


def test_every_version_of_the_wire_has_a_choice() -> None:
    for version in (*RUNTIME_VERSIONS, *TENSORFLOW_VERSIONS):
        has_framework = (
            "-tf-" in version or "-pt-" in version or version[0].isdigit() or "nightly" in version
        )
        choice = software_of(version, LOCKED_PYTHON)
        assert choice.software is not None and choice.optional != has_framework, version


def test_software_is_found_by_framework_name_and_version() -> None:
    found = [
        find_software(name, 11).software
        for name in ("tensorflow", "tensorflow-2.15.1", "jax", "tpu-vm-pt-2.0")
    ]
    assert [item and item.name for item in found] == [
        "tensorflow-2.21.0",
        "tensorflow-2.15.1",
        "jax-0.10.2",
        "pytorch-2.13.0",
    ]
    assert (find_software("tensorflow", 12).software or SOFTWARE[0]).release == "2.21.0"
    with pytest.raises(LookupError, match=r"tpu-vm-base has no environment .* tensorflow-2\.15\.1"):
        find_software("tpu-vm-base", 10)
    with pytest.raises(LookupError, match=r"tensorflw has no environment \(unknown\)"):
        find_software("tensorflw", 11)
    with pytest.raises(LookupError, match=r"there is none for Python 3\.14"):
        find_software("tensorflow-2.15.1", 14)


@pytest.mark.parametrize("software", SOFTWARE, ids=lambda item: item.name)
def test_a_lock_file_pins_every_package_and_has_what_is_asked_for(software: Software) -> None:
    pinned = dict(line.split("==") for line in software.lock_lines())
    assert len(pinned) == len(software.lock_lines()) > 5
    for wanted in software.packages:
        name, _, release = wanted.partition("==")
        assert pinned[name] == (release or pinned[name])
