"""Metadata of Compute Engine's projects, which all hosts of a project have: `ssh-keys`, among
others."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping

from podyard.base.clock import PlatformTime
from podyard.control.access import identity
from podyard.db.access import projects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.refusal import require_fingerprint
from podyard.domain.principal import Principal

VIEW = "compute.projects.get"
SET = "compute.projects.setCommonInstanceMetadata"


@dataclasses.dataclass(frozen=True, slots=True)
class ComputeProject:
    number: int
    created: PlatformTime
    metadata: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Hexadecimal; the same metadata give the same."""
        return hashlib.sha256(json.dumps(self.metadata, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """Return what a change must name that is not to overwrite another one (base64, as Compute
        Engine's)."""
        return base64.urlsafe_b64encode(bytes.fromhex(self.digest)).decode()


def get(uow: UnitOfWork, principal: Principal, project: str) -> ComputeProject:
    principal.require(VIEW, project, f"projects/{project}")
    return _project(uow, project)


def set_metadata(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    metadata: Mapping[str, str],
    fingerprint: str | None,
) -> ComputeProject:
    """Replaces the metadata. Raises `conditionNotMet` when `fingerprint` is given and
    is not that of the metadata now."""
    principal.require(SET, project, f"projects/{project}")
    before = _project(uow, project)
    if fingerprint is not None:
        require_fingerprint("metadata", fingerprint, before.fingerprint)
    projects.set_compute_metadata(uow, project, metadata)
    return _project(uow, project)


def _project(uow: UnitOfWork, project: str) -> ComputeProject:
    found = identity.project_row(uow, project)
    return ComputeProject(found.number, found.created, found.compute_metadata)
