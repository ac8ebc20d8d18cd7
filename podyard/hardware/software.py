"""The software of a runtime version: packages, in an environment that hosts and `podyard run
--runtime` share.

A Cloud TPU image of 2022 has releases that no Python of today can load. Then the nearest release
with wheels for this Python takes its place, and the choice says so. `locks` holds all packages of
each, resolved with pip for Python 3.11.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from podyard.hardware.runtime_versions import RUNTIME_VERSIONS

LOCKED_PYTHON = 11  # the minor version of Python 3 that the lock files were resolved for
_LOCKS = Path(__file__).parent / "locks"
_VERSION = re.compile(r"(?:tpu-vm-(tf|pt)-)?(\d+(?:\.\d+)+)(?:-[a-z0-9-]+)?")
# None: a TPU Node's TensorFlow version
_FRAMEWORKS = {"tf": "TensorFlow", "pt": "PyTorch", None: "TensorFlow"}
_NIGHTLY = ("nightly", "nightly-2.x")


@dataclasses.dataclass(frozen=True, slots=True)
class Software:
    """One environment. `pythons`: the first and the last minor version of Python 3 that all
    packages have wheels for,
    as PyPI had them in November 2026. `packages` is what is asked for; the lock file has what comes
    with it."""

    framework: str
    release: str
    pythons: tuple[int, int]
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.framework.lower()}-{self.release}"

    @property
    def title(self) -> str:
        return f"{self.framework} {self.release}"

    def serves(self, python: int) -> bool:
        return self.pythons[0] <= python <= self.pythons[1]

    def lock_lines(self) -> tuple[str, ...]:
        """Every package of the environment, as `name==version`."""
        lines = (_LOCKS / f"{self.name}.txt").read_text(encoding="ascii").splitlines()
        return tuple(line for line in lines if not line.startswith("#"))


# Cloud TPU's images have google-cloud-storage; notebooks on hosts run in ipykernel.
_IN_ALL = ("google-cloud-storage", "ipykernel")

# Keras turns images with the one and reads them with the other; images with TensorFlow have both.
_WITH_TENSORFLOW = ("scipy", "pillow", *_IN_ALL)

SOFTWARE = (
    Software(
        "JAX",
        "0.10.2",
        (11, 14),
        ("jax==0.10.2", "flax", "optax", "orbax-checkpoint", "keras", "requests", *_IN_ALL),
    ),
    Software("TensorFlow", "2.15.1", (9, 11), ("tensorflow-cpu==2.15.1", *_WITH_TENSORFLOW)),
    Software("TensorFlow", "2.16.1", (9, 12), ("tensorflow-cpu==2.16.1", *_WITH_TENSORFLOW)),
    Software("TensorFlow", "2.18.0", (9, 12), ("tensorflow-cpu==2.18.0", *_WITH_TENSORFLOW)),
    Software("TensorFlow", "2.21.0", (10, 13), ("tensorflow-cpu==2.21.0", *_WITH_TENSORFLOW)),
    Software("PyTorch", "2.13.0", (10, 14), ("torch==2.13.0", "numpy", *_IN_ALL)),
)


@dataclasses.dataclass(frozen=True, slots=True)
class SoftwareChoice:
    """The software of a runtime version here. `software` None: there is none, and `why` says why.
    `optional`: nobody asked for it, and hosts have it only where it is installed."""

    version: str
    software: Software | None
    why: str = ""
    optional: bool = False

    def sentence(self) -> str:
        """For users: `tpu-vm-tf-2.8.0: TensorFlow 2.15.1 here (no TensorFlow 2.8.0 for Python
        3.11)`."""
        what = "the Python of Podyard" if self.software is None else f"{self.software.title} here"
        return f"{self.version}: {what}{f' ({self.why})' if self.why else ''}"


def software_of(version: str, python: int) -> SoftwareChoice:
    """Return what the runtime version (or TensorFlow version of a TPU Node) `version` has for
    Python 3.`python`."""
    found = _VERSION.fullmatch(version)
    if found is None and version not in _NIGHTLY:
        return SoftwareChoice(
            version, _last("JAX", python), "its image has no framework", optional=True
        )
    framework = "TensorFlow" if found is None else _FRAMEWORKS[found[1]]
    last = _last(framework, python)
    if last is None:
        return SoftwareChoice(version, None, f"there is no {framework} for Python 3.{python}")
    if found is None:
        return SoftwareChoice(version, last)
    fitting = [item for item in SOFTWARE if item.framework == framework and item.serves(python)]
    chosen = next((item for item in fitting if _key(item.release) >= _key(found[2])), last)
    if chosen.release == found[2]:
        return SoftwareChoice(version, chosen)
    return SoftwareChoice(
        version, chosen, f"no environment of {framework} {found[2]} for Python 3.{python}"
    )


def find_software(name: str, python: int) -> SoftwareChoice:
    """By a runtime version, or by the name of an environment or a framework: tensorflow-2.21.0,
    jax.

    Raises LookupError with the names there are, if it is none, or has no wheels for Python
    3.`python`.
    """
    named = [item for item in SOFTWARE if name.lower() in (item.name, item.framework.lower())]
    for item in reversed(named):
        if item.serves(python):
            return SoftwareChoice(name, item)
    choice = software_of(name, python)
    is_unknown = choice.optional and name not in RUNTIME_VERSIONS
    if choice.software is None or is_unknown:
        names = ", ".join(item.name for item in SOFTWARE)
        why = (
            f"there is none for Python 3.{python}"
            if named
            else "unknown"
            if is_unknown
            else choice.why
        )
        raise LookupError(
            f"{name} has no environment ({why}): use a runtime version with one, or {names}"
        )
    return choice


def _last(framework: str, python: int) -> Software | None:
    return next(
        (
            item
            for item in reversed(SOFTWARE)
            if item.framework == framework and item.serves(python)
        ),
        None,
    )


def _key(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
