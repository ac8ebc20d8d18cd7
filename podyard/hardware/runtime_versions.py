"""Runtime versions (v2: software of the TPU VMs; v1: TensorFlow versions), and the generations each
serves.

Each version has its source. An unknown one is refused with the nearest name, unless the fleet says
`unknown_runtime_versions: allow`: Google adds versions, and removes them, without notice.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from podyard.base.errors import PodyardError, invalid
from podyard.base.ids import error_id
from podyard.hardware.generation import RUNTIMES, UNVERIFIED, Generation
from podyard.hardware.generations import GENERATIONS

_RUNTIMES_OLD = "cloud.google.com/tpu/docs/supported-tpu-versions, at the time of TensorFlow 2.16"
_GCLOUD_VM = "gcloud compute tpus tpu-vm create --help"
_GCLOUD_NODE = "gcloud compute tpus create --help"
_GCLOUD_GROUPS = "gcloud compute tpus execution-groups create --help"
_SKYPILOT = "SkyPilot, sky/resources.py"
_RAY = "Ray, python/ray/autoscaler/gcp"
_CLIENTS = "configurations of Cloud TPU's clients"
_SCRIPTS = "public scripts that create TPU VMs"


def _family(*families: str) -> frozenset[str]:
    return frozenset(item.name for item in GENERATIONS.values() if item.runtime_family in families)


_V2_V3 = _family("tensorflow")
_UP_TO_V4 = _family("tensorflow", "v4")
_V4 = _family("v4")
_ALL = _family("tensorflow", "v4", "pjrt")

# TensorFlow releases with a TPU VM image; `-pod` is for slices of several hosts (_RUNTIMES_OLD).
# From 2.15 on the name says the device API, and PJRT serves all generations. v4 has the plain names
# from 2.10.1 on, and separate names before.
_TENSORFLOW_PLAIN = (
    "2.6.5 2.7.3 2.7.4 2.8.0 2.8.3 2.8.4 2.9.1 2.9.3 2.10.0 2.10.1 2.11.0 2.11.1 2.12.0 2.12.1 "
    "2.13.0 2.13.1 2.14.0 "
    "2.14.1"
)
_TENSORFLOW_SERVES_V4 = "2.10.1"
_TENSORFLOW_V4 = "2.9.2 2.9.3 2.10.0"
_TENSORFLOW_WITH_API = "2.15.0 2.15.1 2.16.1"
_TENSORFLOW_PJRT = "2.18.0"


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """`generations` are the names of the generations the version runs on."""

    version: str
    generations: frozenset[str]
    source: str


def _tensorflow() -> list[RuntimeVersion]:
    found = []
    served = _V2_V3
    for release in _TENSORFLOW_PLAIN.split():
        served = _UP_TO_V4 if release == _TENSORFLOW_SERVES_V4 else served
        found += [
            RuntimeVersion(f"tpu-vm-tf-{release}{pod}", served, _RUNTIMES_OLD)
            for pod in ("", "-pod")
        ]
    for release in _TENSORFLOW_V4.split():
        found += [
            RuntimeVersion(f"tpu-vm-tf-{release}{pod}-v4", _V4, _RUNTIMES_OLD)
            for pod in ("", "-pod")
        ]
    for release in _TENSORFLOW_WITH_API.split():
        for pod in ("", "-pod"):
            found.append(RuntimeVersion(f"tpu-vm-tf-{release}{pod}-pjrt", _ALL, _RUNTIMES_OLD))
            found.append(RuntimeVersion(f"tpu-vm-tf-{release}{pod}-se", _UP_TO_V4, _RUNTIMES_OLD))
    for pod in ("", "-pod"):
        found.append(RuntimeVersion(f"tpu-vm-tf-{_TENSORFLOW_PJRT}{pod}-pjrt", _ALL, _CLIENTS))
    return found


def _of_generations() -> list[RuntimeVersion]:
    """Those that only some generations run, by the generations' own lists."""
    served: dict[str, RuntimeVersion] = {}
    for generation in GENERATIONS.values():
        for version, source in generation.runtime_versions.items():
            before = served[version].generations if version in served else frozenset[str]()
            served[version] = RuntimeVersion(version, before | {generation.name}, source)
    return list(served.values())


RUNTIME_VERSIONS: Mapping[str, RuntimeVersion] = {
    item.version: item
    for item in (
        RuntimeVersion("tpu-vm-base", _V2_V3, _SKYPILOT),
        # from v5e on: from memory, unverified
        RuntimeVersion("tpu-ubuntu2204-base", _ALL, RUNTIMES),
        RuntimeVersion("tpu-vm-cos-stable", _ALL, _CLIENTS),
        *_of_generations(),
        RuntimeVersion("v2-alpha", _V2_V3, _RAY),
        RuntimeVersion("2.3", _V2_V3, _GCLOUD_VM),
        RuntimeVersion("tpu-vm-pt-1.10", _V2_V3, _SCRIPTS),
        RuntimeVersion("tpu-vm-pt-1.12", _V2_V3, _SCRIPTS),
        RuntimeVersion("tpu-vm-pt-1.13", _V2_V3, _SCRIPTS),
        RuntimeVersion("tpu-vm-pt-2.0", _UP_TO_V4, _SCRIPTS),
        *_tensorflow(),
    )
}

# API v1 (TPU Node) names TensorFlow versions instead: version -> source.
TENSORFLOW_VERSIONS: Mapping[str, str] = {
    "1.1": _GCLOUD_NODE,
    "1.6": _GCLOUD_NODE,
    "1.7": "tensorflow/tpu#91",
    "1.14": _GCLOUD_NODE,
    "1.15": "gcloud compute tpus reimage --help",
    "2.1": UNVERIFIED,
    "2.3": UNVERIFIED,
    "2.3.1": "tensorflow/tpu#877",
    "2.4.0": "tensorflow/tpu#877",
    "2.4.1": _GCLOUD_GROUPS,
    "2.5.0": "SkyPilot, TPU Nodes in its documentation",
    "2.8.0": UNVERIFIED,
    "2.11.0": UNVERIFIED,
    "2.12.0": _SKYPILOT,
    "nightly": _GCLOUD_GROUPS,
    "nightly-2.x": "tensorflow/models#7962",
}


def runtime_versions_of(generation: Generation) -> tuple[RuntimeVersion, ...]:
    return tuple(item for item in RUNTIME_VERSIONS.values() if generation.name in item.generations)


def job_versions_of(generation: Generation) -> tuple[str, ...]:
    """Return the versions that a node of a job may have. Those of TPU Nodes (1.14) are among them
    where the generation had TPU Nodes: people choose them for programs of their time."""
    own = tuple(item.version for item in runtime_versions_of(generation))
    older = TENSORFLOW_VERSIONS if generation.runtime_family == "tensorflow" else ()
    return (*own, *(version for version in older if version not in own))


def check_version(
    version: str,
    generation: Generation,
    of_tpu_node: bool,
    *,
    of_job: bool = False,
    unknown_allowed: bool = False,
) -> None:
    """Check what a node is asked for. Raises what `check_tensorflow` and `check_serves` raise.

    `of_tpu_node`: v1's field holds TensorFlow versions, and so it does for nodes that were made by
    v2; a runtime version that v1 shows for such a node may be sent back.
    """
    if of_job and version in job_versions_of(generation):
        return
    if of_tpu_node and version not in RUNTIME_VERSIONS:
        check_tensorflow(version, unknown_allowed=unknown_allowed)
    else:
        check_serves(version, generation, unknown_allowed=unknown_allowed)


def check_serves(version: str, generation: Generation, *, unknown_allowed: bool = False) -> None:
    """Raises INVALID_ARGUMENT when `version` does not exist, with the nearest name, or does not run
    on `generation`, with those that do."""
    known = RUNTIME_VERSIONS.get(version)
    if known is None:
        if not unknown_allowed:
            names = [item.version for item in runtime_versions_of(generation)]
            near = _nearest(version, names, generation.runtime_version_default)
            text = (
                f"runtime version {version!r} does not exist; the nearest that runs on "
                f"{generation.name} is {near!r}"
            )
            raise invalid(text, "runtimeVersion")
        return
    if generation.name not in known.generations:
        names = [item.version for item in runtime_versions_of(generation)]
        raise invalid(
            f"runtime version {version!r} does not run on {generation.name} "
            f"(it serves {', '.join(sorted(known.generations))}): one of {', '.join(names)}",
            "runtimeVersion",
        )


def check_tensorflow(version: str, *, unknown_allowed: bool = False) -> None:
    """Raises INVALID_ARGUMENT in Cloud TPU's words when this TensorFlow version does not exist; the
    details have the nearest one. The text: tensorflow/tpu#877."""
    if version in TENSORFLOW_VERSIONS or unknown_allowed:
        return
    near = _nearest(version, list(TENSORFLOW_VERSIONS), max(TENSORFLOW_VERSIONS, key=_release))
    why = invalid(
        f"TensorFlow version {version!r} does not exist; the nearest that does is {near!r}",
        "tensorflowVersion",
    )
    text = (
        'Cloud TPU received an invalid argument. The field "TensorflowVersion" cannot be '
        f'"{version}".'
    )
    raise PodyardError(why.code, f"{text} {error_id(text)}", why.details)


def _nearest(version: str, names: list[str], fallback: str) -> str:
    """The name that is most like `version`, first of all one that goes on where it ends; `fallback`
    when none is."""
    longer = [name for name in reversed(names) if version and name.startswith(version)]
    if longer:
        return min(longer, key=len)
    return next(iter(difflib.get_close_matches(version, names, 1)), fallback)


def _release(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
