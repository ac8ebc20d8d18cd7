"""Public images of boot disks: names and families that requests may name. Whichever it is, the host
is a box of this machine, with the software that its runtime version has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.domain.compute.place import path_of
from podyard.domain.compute.refusal import resource_not_found
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.runtime_versions import RUNTIME_VERSIONS

# Projects that everybody may read.
ACCELERATORS = "ubuntu-os-accelerator-images"
RUNTIMES = "cloud-tpu-images"  # the name is ours: Google does not publish where these images are
_CREATED = "2026-10-01T00:00:00.000-07:00"
_RELEASE = "v20261001"  # of all: images have a date in their names, and a family has the newest


@dataclasses.dataclass(frozen=True, slots=True)
class PublicImage:
    """`disk_gb`: the least that a boot disk of it has."""

    project: str
    family: str
    name: str
    description: str
    disk_gb: int = 10
    architecture: str = "X86_64"

    @property
    def creation_time(self) -> str:
        return _CREATED

    @property
    def path(self) -> str:
        return f"projects/{self.project}/global/images/{self.name}"


# Families by project (`gcloud compute images list`, from memory; those for TPUs
# are in the files of generations), each with what it is.
_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "debian-cloud": {"debian-11": "Debian 11", "debian-12": "Debian 12"},
    "ubuntu-os-cloud": {
        "ubuntu-2204-lts": "Ubuntu 22.04 LTS",
        "ubuntu-2404-lts-amd64": "Ubuntu 24.04 LTS",
    },
    "cos-cloud": {"cos-stable": "Container-Optimized OS"},
}
_FULL_NAMES = {
    "debian-11": "debian-11-bullseye",
    "debian-12": "debian-12-bookworm",
    "ubuntu-2204-lts": "ubuntu-2204-jammy",
    "ubuntu-2404-lts-amd64": "ubuntu-2404-noble-amd64",
}
# Of Google, with images that Podyard has not: gcloud lists those of each (gcloud 528).
_WITHOUT_IMAGES = """
    centos-cloud deeplearning-platform-release fedora-cloud fedora-coreos-cloud opensuse-cloud
    oracle-linux-cloud rhel-cloud rhel-sap-cloud rocky-linux-accelerator-cloud rocky-linux-cloud
    suse-cloud suse-sap-cloud ubuntu-os-pro-cloud windows-cloud windows-sql-cloud
"""
PUBLIC_PROJECTS = frozenset({ACCELERATORS, RUNTIMES, *_FAMILIES, *_WITHOUT_IMAGES.split()})


def _all() -> tuple[PublicImage, ...]:
    images = [
        PublicImage(project, family, f"{_FULL_NAMES.get(family, family)}-{_RELEASE}", text)
        for project, families in _FAMILIES.items()
        for family, text in families.items()
    ]
    for base in sorted({one.image_base for one in GENERATIONS.values() if one.image_base}):
        names = sorted(one.name for one in GENERATIONS.values() if one.image_base == base)
        family = "-".join([base, *names])
        text = f"Ubuntu for TPU {', '.join(names)}"
        images.append(PublicImage(ACCELERATORS, family, f"{family}-{_RELEASE}", text))
    images += [
        PublicImage(RUNTIMES, version, f"{short}-{_RELEASE}", f"TPU VM {version}")
        for version in RUNTIME_VERSIONS
        for short in (version.replace(".", "-"),)
    ]
    return tuple(images)


IMAGES: Sequence[PublicImage] = _all()


def images_of(project: str) -> list[PublicImage]:
    """Those of a project; a user's own project has none."""
    return [image for image in IMAGES if image.project == project]


def find_named(url: str) -> PublicImage | None:
    """The image of a URL, a path or a family's; None: none is named. Raises `notFound`."""
    if not url:
        return None
    parts = path_of(url).split("/")
    if parts[:1] != ["projects"] or len(parts) < 5:
        raise resource_not_found(path_of(url))
    of_family = parts[-2] == "family"
    return find_image(parts[1], "" if of_family else parts[-1], parts[-1] if of_family else "")


def newest_of(path: str) -> str:
    """The path of the image that `path` names, by its family, too; another one as it is."""
    parts = path.split("/")
    family = parts[-2:-1] == ["family"]
    if parts[:1] != ["projects"] or len(parts) < 5:
        return path
    paths = (
        image.path
        for image in images_of(parts[1])
        if (image.family if family else image.name) == parts[-1]
    )
    return next(paths, path)


def find_image(project: str, name: str, family: str = "") -> PublicImage:
    """The image of a name, or the newest of a family; raises `notFound`."""
    for image in images_of(project):
        if (image.family == family) if family else (image.name == name):
            return image
    short = f"family/{family}" if family else name
    raise resource_not_found(f"projects/{project}/global/images/{short}")
