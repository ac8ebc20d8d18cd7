"""Changes of one field of an instance: each is a function from the instance as it is asked for to
the one that it becomes, which raises what Compute Engine refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.domain.compute.refusal import invalid_value
from podyard.domain.instances.instance import POLICIES_FIELD, InstanceSpec

Edit = Callable[[InstanceSpec], InstanceSpec]


def protect(is_protected: bool) -> Edit:
    return lambda spec: dataclasses.replace(spec, deletion_protection=is_protected)


def set_extras(fields: Mapping[str, Any]) -> Edit:
    """Fields that nothing follows from; an empty one is taken away."""

    def edit(spec: InstanceSpec) -> InstanceSpec:
        both = {**spec.extras, **fields}
        return dataclasses.replace(spec, extras={name: both[name] for name in both if both[name]})

    return edit


def merge(field: str, message: Mapping[str, Any]) -> Edit:
    """The fields of a message that nothing follows from; those that are left out stay."""
    return lambda spec: set_extras({field: {**spec.extras.get(field, {}), **message}})(spec)


def add_policies(paths: Sequence[str]) -> Edit:
    return lambda spec: set_extras(
        {POLICIES_FIELD: list(dict.fromkeys([*spec.placement_policies, *paths]))}
    )(spec)


def remove_policies(paths: Sequence[str]) -> Edit:
    return lambda spec: set_extras(
        {POLICIES_FIELD: [one for one in spec.placement_policies if one not in paths]}
    )(spec)


def auto_delete(device_name: str, is_deleted: bool) -> Edit:
    """A disk goes with its instance from now on, or stays."""

    def edit(spec: InstanceSpec) -> InstanceSpec:
        if device_name == spec.boot.device:
            return dataclasses.replace(spec, boot=spec.boot._replace(auto_delete=is_deleted))
        names = [one.device for one in spec.disks]
        if device_name not in names:
            why = f"No attached disk found with device name '{device_name}'"
            raise invalid_value("disk", device_name, why)
        at = names.index(device_name)
        changed = spec.disks[at]._replace(auto_delete=is_deleted)
        disks = (*spec.disks[:at], changed, *spec.disks[at + 1 :])
        return dataclasses.replace(spec, disks=disks)

    return edit


def add_access(interface: str, access: Mapping[str, Any]) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        if spec.interfaces[at].has_external_ip:
            why = "At most one access config currently supported."
            raise invalid_value("accessConfig", access.get("name", ""), why)
        return _with_access(spec, at, access)

    return edit


def update_access(interface: str, access: Mapping[str, Any]) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        name = str(access.get("name") or spec.interfaces[at].access_name)
        _check_access(spec, at, name)
        return _with_access(spec, at, {**spec.interfaces[at].access, **access})

    return edit


def delete_access(interface: str, name: str) -> Edit:
    def edit(spec: InstanceSpec) -> InstanceSpec:
        at = _interface(spec, interface)
        _check_access(spec, at, name)
        return _with_access(spec, at, None)

    return edit


def _interface(spec: InstanceSpec, name: str) -> int:
    number = name.removeprefix("nic")
    if not number.isdigit() or int(number) >= len(spec.interfaces):
        raise invalid_value("networkInterface", name, "The instance has no such interface.")
    return int(number)


def _check_access(spec: InstanceSpec, at: int, name: str) -> None:
    one = spec.interfaces[at]
    if not one.has_external_ip or one.access_name != name:
        raise invalid_value("accessConfig", name, "The interface has no such access config.")


def _with_access(spec: InstanceSpec, at: int, access: Mapping[str, Any] | None) -> InstanceSpec:
    """The same with an external address, or (None) without one."""
    changed = spec.interfaces[at]._replace(
        has_external_ip=access is not None, access=dict(access or {})
    )
    interfaces = (*spec.interfaces[:at], changed, *spec.interfaces[at + 1 :])
    return dataclasses.replace(spec, interfaces=interfaces)
